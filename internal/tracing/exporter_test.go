package tracing

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// standIn is a collector that decodes by OpenTelemetry's own messages.
type standIn struct {
	*httptest.Server
	answer  atomic.Pointer[http.HandlerFunc] // in place of taking the spans
	mu      sync.Mutex
	spans   []*tracepb.Span
	service string
	headers http.Header
}

func newStandIn(t *testing.T) *standIn {
	t.Helper()
	c := &standIn{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := c.answer.Load(); answer != nil {
			(*answer)(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		var req collectorpb.ExportTraceServiceRequest
		if r.URL.Path != "/base/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(body, &req) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.headers = r.Header
		for _, of := range req.GetResourceSpans() {
			c.service = of.GetResource().GetAttributes()[0].GetValue().GetStringValue()
			for _, scope := range of.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *standIn) refuse(status int) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	c.answer.Store(&answer)
}

func (c *standIn) got() []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spans
}

// counts are Metrics for tests.
type counts struct {
	mu       sync.Mutex
	exported int
	dropped  map[string]int
}

func (c *counts) SpansExported(n int) { c.mu.Lock(); c.exported += n; c.mu.Unlock() }
func (c *counts) SpansDropped(reason string, n int) {
	c.mu.Lock()
	c.dropped[reason] += n
	c.mu.Unlock()
}

func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.exported, c.dropped)
}

// running starts an exporter to the collector; stop joins it.
func running(t *testing.T, endpoint string) (source *Source, n *counts, logs *observer.ObservedLogs, stop func()) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	n = &counts{dropped: map[string]int{}}
	o := DefaultOptions()
	o.Endpoint, o.Headers = endpoint, setting.Secret("api-key=a%2Cb")
	exporter := must.Get(New(o, "v1", "me", n, zap.New(core)))(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); exporter.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return &Source{Exporter: exporter, Pipeline: "orders", ClientID: "client"}, n, logs, stop
}

// published is an event of a sampled trace.
func published(id string) *transform.Event {
	ev := &transform.Event{ID: []byte(id), Table: "public.outbox", CommitTime: time.Unix(1, 500), Span: &transform.Span{
		TraceID: [16]byte{1}, SpanID: [8]byte{2}, ParentID: [8]byte{3}, State: []byte("a=b"),
	}}
	ev.Record.Topic, ev.Record.Key, ev.Record.Value, ev.Record.Partition, ev.Record.Offset = "orders", []byte("k\xff"), []byte("value"), 3, 7
	ev.Position.CommitLSN, ev.Position.Seq = 0x16B374D848, 2
	return ev
}

func TestSpansOfEvents(t *testing.T) {
	c := newStandIn(t)
	source, n, _, stop := running(t, c.URL+"/base/")
	source.Published([]*transform.Event{published("1"), {ID: []byte("of no trace")}})
	source.Rejected(published("2"), transform.ReasonRecordTooLarge)
	var none *Source
	none.Published([]*transform.Event{published("3")})
	none.Rejected(published("3"), "")
	stop()
	if len(c.got()) != 2 || n.String() != "2 map[]" {
		t.Fatalf("%d spans, %s", len(c.got()), n)
	}
	if c.service != "cdc-outbox" || c.headers.Get("api-key") != "a,b" {
		t.Errorf("service %q, headers %v", c.service, c.headers)
	}
	good, bad := c.got()[0], c.got()[1]
	if good.GetName() != "send orders" || good.GetKind() != tracepb.Span_SPAN_KIND_PRODUCER || good.GetTraceState() != "a=b" ||
		fmt.Sprintf("%x %x %x", good.GetTraceId(), good.GetSpanId(), good.GetParentSpanId()) != "01000000000000000000000000000000 0200000000000000 0300000000000000" {
		t.Errorf("span %v", good)
	}
	if good.GetStartTimeUnixNano() != 1_000_000_500 || good.GetEndTimeUnixNano() < good.GetStartTimeUnixNano() || good.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_UNSET {
		t.Errorf("from %d to %d, %v", good.GetStartTimeUnixNano(), good.GetEndTimeUnixNano(), good.GetStatus())
	}
	const both = "messaging.system=kafka messaging.operation.name=send messaging.operation.type=send messaging.destination.name=orders messaging.client.id=client " +
		"messaging.message.id=%s messaging.message.body.size=5 cdc_outbox.table=public.outbox messaging.kafka.message.key=k\uFFFD cdc_outbox.lsn=16/B374D848 cdc_outbox.seq=2 cdc_outbox.pipeline=orders "
	if got, want := attributes(good), fmt.Sprintf(both, "1")+"messaging.kafka.offset=7 messaging.destination.partition.id=3"; got != want {
		t.Errorf("attributes\n%s\nwant\n%s", got, want)
	}
	if got, want := attributes(bad), fmt.Sprintf(both, "2")+"error.type=record_too_large"; got != want || bad.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("attributes\n%s\nwant\n%s\n%v", got, want, bad.GetStatus())
	}
}

func attributes(span *tracepb.Span) string {
	var all []string
	for _, kv := range span.GetAttributes() {
		value := kv.GetValue().GetStringValue()
		if kv.GetValue().GetIntValue() != 0 {
			value = fmt.Sprint(kv.GetValue().GetIntValue())
		}
		all = append(all, kv.GetKey()+"="+value)
	}
	return strings.Join(all, " ")
}

// A clock behind the server's, and an unknown commit time, give no span that ends before it
// begins.
func TestSpansEndAfterTheyBegin(t *testing.T) {
	now := time.Unix(100, 0)
	for _, commit := range []time.Time{now.Add(time.Hour), {}} {
		ev := published("1")
		ev.CommitTime = commit
		if s := spanOf(ev, &Source{}, now, ""); s.GetStartTimeUnixNano() != s.GetEndTimeUnixNano() {
			t.Errorf("commit %v: from %d to %d", commit, s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano())
		}
	}
}

// Failure mode 206. The collector is away, then back. The pipeline does not wait; the spans that
// may wait do, the others are counted, and the trouble is told once.
func TestCollectorAway(t *testing.T) {
	usual := waits
	waits = backoff.Range{First: time.Millisecond, Longest: 10 * time.Millisecond}
	t.Cleanup(func() { waits = usual })
	c := newStandIn(t)
	c.refuse(http.StatusServiceUnavailable)
	source, n, logs, stop := running(t, c.URL+"/base")
	const all = mostQueued + 2*batchSize
	for i := range all {
		source.Published([]*transform.Event{published(fmt.Sprint(i))})
	}
	await.Until(t, "the status", func() bool { return strings.Contains(source.Status().Error, "answers 503") })
	if s := source.Status(); s.Exported != 0 || s.Dropped == 0 || s.Waiting != mostQueued+batchSize {
		t.Errorf("status %+v", s)
	}
	c.answer.Store(nil)
	await.Until(t, "the export", func() bool { return source.Status().Waiting == 0 && source.Status().Error == "" })
	stop()
	s := source.Status()
	if int64(len(c.got())) != s.Exported || s.Exported+s.Dropped != all || n.String() != fmt.Sprintf("%d map[queue_full:%d]", s.Exported, s.Dropped) {
		t.Errorf("%d of %d spans; %s; %+v", len(c.got()), all, n, s)
	}
	for message, want := range map[string]int{
		"spans cannot be exported; events are published all the same":       1,
		"spans are exported again":                                          1,
		"spans are dropped: as many as may wait are waiting for the export": 2, // the first, and the sum
	} {
		if told := logs.FilterMessage(message).Len(); told != want {
			t.Errorf("%q is told %d times, want %d", message, told, want)
		}
	}
}

// A request that will never be taken is dropped, and the next goes on.
func TestCollectorRefuses(t *testing.T) {
	c := newStandIn(t)
	c.refuse(http.StatusUnauthorized)
	source, n, _, stop := running(t, c.URL+"/base")
	source.Published([]*transform.Event{published("1")})
	await.Until(t, "the refusal", func() bool { return source.Status().Dropped == 1 })
	partial := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body, _ := proto.Marshal(&collectorpb.ExportTraceServiceResponse{PartialSuccess: &collectorpb.ExportTracePartialSuccess{RejectedSpans: 1}})
		_, _ = w.Write(body)
	})
	c.answer.Store(&partial)
	source.Published([]*transform.Event{published("2"), published("3")})
	await.Until(t, "the export", func() bool { return source.Status().Exported == 1 })
	stop()
	if n.String() != "1 map[refused:2]" {
		t.Error(n)
	}
}

// Failure mode 206, too. A collector with nonsense as its answers stops neither the exporter nor the
// process: a status of success counts, and counts of refused spans have the bounds of the request.
func TestCollectorAnswersNonsense(t *testing.T) {
	rejecting := func(n int64) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			body, _ := proto.Marshal(&collectorpb.ExportTraceServiceResponse{PartialSuccess: &collectorpb.ExportTracePartialSuccess{RejectedSpans: n}})
			_, _ = w.Write(body)
		}
	}
	garbage := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(status)
			_, _ = w.Write([]byte("no gzip"))
		}
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"more refused than sent": {rejecting(1000), "0 map[refused:2]"},
		"less refused than none": {rejecting(-1000), "2 map[]"},
		"taken, in no gzip":      {garbage(http.StatusOK), "2 map[]"},
		"refused, in no gzip":    {garbage(http.StatusBadRequest), "0 map[refused:2]"},
		"taken, in no protobuf":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, "2 map[]"},
		"taken, and then cut short": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			_, _ = w.Write([]byte("x"))
		}, "2 map[]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t)
			s.answer.Store(&c.answer)
			source, n, _, stop := running(t, s.URL+"/base")
			source.Published([]*transform.Event{published("1"), published("2")})
			await.Until(t, "the outcome", func() bool { now := source.Status(); return now.Exported+now.Dropped == 2 })
			stop()
			if n.String() != c.want {
				t.Errorf("%s, want %s", n, c.want)
			}
		})
	}
}

// The topic of a bad event may be anything, also no text.
func TestSpanOfATopicThatIsNoText(t *testing.T) {
	c := newStandIn(t)
	source, n, _, stop := running(t, c.URL+"/base")
	bad := published("1")
	bad.Record.Topic = "\xff" + strings.Repeat("x", 100_000)
	source.Rejected(bad, transform.ReasonIllegalTopic)
	await.Until(t, "the export", func() bool { return source.Status().Exported == 1 })
	stop()
	if n.String() != "1 map[]" {
		t.Error(n)
	}
	if span := c.got()[0]; len(span.GetName()) > 2*longest || !strings.Contains(attributes(span), "messaging.destination.name=\uFFFDxxx") {
		t.Errorf("%.300s", span)
	}
}

// A stop does not wait for a collector that is away, and counts what it had.
func TestStopWhileTheCollectorIsAway(t *testing.T) {
	c := newStandIn(t)
	c.Close()
	source, n, _, stop := running(t, c.URL+"/base")
	source.Published([]*transform.Event{published("1")})
	await.Until(t, "the status", func() bool { return source.Status().Error != "" })
	source.Published([]*transform.Event{published("2")})
	stop()
	source.Published([]*transform.Event{published("3")})
	if n.String() != "0 map[stopped:3]" {
		t.Error(n)
	}
}

// A stop while a request is under way waits for its answer, and sends its spans once. They count
// as waiting.
func TestStopDuringARequest(t *testing.T) {
	c := newStandIn(t)
	take, asked, answer := c.Config.Handler, make(chan struct{}), make(chan struct{})
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.answer.Store(nil)
		close(asked)
		<-answer
		take.ServeHTTP(w, r)
	})
	c.answer.Store(&slow)
	n := &counts{dropped: map[string]int{}}
	o := DefaultOptions()
	o.Endpoint = c.URL + "/base"
	source := &Source{Exporter: must.Get(New(o, "v1", "me", n, zap.NewNop()))(t)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); source.Run(ctx) }()
	source.Published([]*transform.Event{published("1")})
	<-asked
	if s := source.Status(); s.Waiting != 1 {
		t.Errorf("status %+v", s)
	}
	cancel()
	close(answer)
	<-done
	if len(c.got()) != 1 || n.String() != "1 map[]" {
		t.Errorf("%d spans taken, %s", len(c.got()), n)
	}
}

func TestHeaders(t *testing.T) {
	for text, want := range map[string]string{
		"": "map[]", "a=b": "map[a:b]", " a = b , c=d%3D%2C ": "map[a:b c:d=,]", "a=b=c": "map[a:b=c]",
		"a": "error", "=b": "error", "a b=c": "error", "a=%zz": "error", "a=%0a": "error",
	} {
		got, err := headers(text)
		if s := fmt.Sprint(got); err == nil && s != want || err != nil && want != "error" {
			t.Errorf("%q: %s, %v, want %s", text, s, err, want)
		}
	}
}
