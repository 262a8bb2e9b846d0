package pipeline

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// A span goes from the commit to the acknowledgement, below the writer's, and the record names
// the span. Events flow while the collector is away; a stop exports the rest.
func TestSpansFromCommitToPublication(t *testing.T) {
	for _, c := range []struct{ mode, delivery string }{
		{config.ModeWAL, sink.DeliveryAtLeastOnce}, {config.ModeWAL, sink.DeliveryExactlyOnce}, {config.ModePoll, sink.DeliveryAtLeastOnce},
	} {
		t.Run(c.mode+" "+c.delivery, func(t *testing.T) {
			collector := newCollector(t)
			collector.away.Store(true)
			cfg, broker, db := inMode(t, "spans_"+c.delivery, c.mode)
			pgtest.Exec(t, db, `ALTER TABLE outbox ADD traceparent text`)
			broker.CreateTopic(t, "outbox.event.order", 1, nil)
			broker.CreateTopic(t, "outbox.dead-letter", 1, nil)
			cfg.Sink.Kafka.Delivery = c.delivery
			cfg.Errors.OnBadEvent = transform.BadEventDeadLetter
			switch {
			case c.delivery == sink.DeliveryExactlyOnce:
				cfg.Checkpoint = store.DefaultOptions()
			case c.mode == config.ModePoll:
				cfg.Checkpoint.Store = store.StoreNone
			}
			loaded := must.Get(config.Load(config.Options{Set: []string{"source.url=" + db, "tracing.otlp_endpoint=" + collector.URL}}))(t)
			cfg.Tracing, cfg.Event.Spans = loaded.Tracing, loaded.Event.Spans
			r := start(t, cfg).active(t)

			const writer = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			const insert = `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, traceparent) VALUES ('order', '%s', 'Placed', '{}', %s)`
			pgtest.Exec(t, db, fmt.Sprintf(insert, "o-1", "'"+writer+"'"), fmt.Sprintf(insert, "o-2", "NULL"), fmt.Sprintf(insert, "", "'"+writer+"'"))
			records := broker.Consume(t, []string{"outbox.event.order"}, kafkatest.Count(2))
			await.Until(t, "the status", func() bool {
				return strings.Contains(body(r.base+"/status"), "the collector answers 503")
			})
			if !r.ready() {
				t.Error("not ready because of the collector")
			}
			collector.away.Store(false)
			must.OK(t, r.stop())

			spans := collector.got()
			slices.SortFunc(spans, func(a, b *tracepb.Span) int { return int(a.GetStatus().GetCode()) - int(b.GetStatus().GetCode()) })
			if len(spans) != 2 || spans[1].GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR {
				t.Fatalf("spans %v, want those of the record and of the dead letter", spans)
			}
			s := spans[0]
			got, _ := transform.Header(records[0].Headers, "traceparent")
			if want := fmt.Sprintf("00-%x-%x-01", s.GetTraceId(), s.GetSpanId()); string(got) != want || fmt.Sprintf("00-%x-%x-01", s.GetTraceId(), s.GetParentSpanId()) != writer {
				t.Errorf("traceparent %s, span %v", got, s)
			}
			if s.GetName() != "send outbox.event.order" || s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
				t.Errorf("span %v", s)
			}
			if _, traced := transform.Header(records[1].Headers, "traceparent"); traced {
				t.Error("an event without a trace has one")
			}
		})
	}
}

// collector decodes by OpenTelemetry's own messages.
type collector struct {
	*httptest.Server
	away  atomic.Bool
	mu    sync.Mutex
	spans []*tracepb.Span
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req collectorpb.ExportTraceServiceRequest
		body, _ := io.ReadAll(r.Body)
		switch {
		case c.away.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &req) != nil:
			w.WriteHeader(http.StatusBadRequest)
		default:
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, of := range req.GetResourceSpans() {
				for _, scope := range of.GetScopeSpans() {
					c.spans = append(c.spans, scope.GetSpans()...)
				}
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) got() []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spans
}
