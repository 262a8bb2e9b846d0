package tracing

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

const (
	// mostQueued bounds the spans that wait, and batchSize those of a request.
	mostQueued, batchSize = 8192, 512
	// interval is the longest wait of a span for others.
	interval = time.Second
	// flushTimeout bounds the export after the end of the pipelines.
	flushTimeout = 5 * time.Second
)

// waits are those between attempts to export a batch.
var waits = backoff.Range{First: 500 * time.Millisecond, Longest: 30 * time.Second}

// The reasons of dropped spans.
const (
	DroppedFull    = "queue_full"
	DroppedRefused = "refused"
	DroppedStopped = "stopped"
)

// Metrics counts spans. It must not block.
type Metrics interface {
	SpansExported(n int)
	SpansDropped(reason string, n int)
}

// Exporter exports the spans of a process. Sources may be used concurrently.
type Exporter struct {
	endpoint string
	resource *resourcepb.Resource
	scope    *commonpb.InstrumentationScope
	to       *collector
	metrics  Metrics
	outage   *digest.Outage
	full     *digest.Log
	wake     chan struct{} // a batch is there

	mu       sync.Mutex
	queue    []*tracepb.Span
	sending  int // spans of the present request, no longer in the queue
	ended    bool
	failing  error
	exported int64
	dropped  int64
}

// New returns an Exporter, which exports while Run runs. The options have passed Validate.
func New(o Options, version, instance string, metrics Metrics, log *zap.Logger) (*Exporter, error) {
	to, err := newCollector(o)
	if err != nil {
		return nil, err
	}
	return &Exporter{
		endpoint: o.Endpoint,
		resource: &resourcepb.Resource{Attributes: []*commonpb.KeyValue{
			text("service.name", o.ServiceName), text("service.version", version), text("service.instance.id", instance),
		}},
		scope:   &commonpb.InstrumentationScope{Name: "github.com/cdc-outbox/cdc-outbox", Version: version},
		to:      to,
		metrics: metrics,
		outage:  digest.NewOutage(log, "spans are exported again"),
		full:    digest.New(log),
		wake:    make(chan struct{}, 1),
	}, nil
}

// Source makes spans of a pipeline's events; nil makes none.
type Source struct {
	*Exporter
	Pipeline string
	ClientID string // of the Kafka client
}

// Published takes the spans of events that were just acknowledged.
func (s *Source) Published(events []*transform.Event) {
	if s == nil {
		return
	}
	now := time.Now()
	for _, ev := range events {
		if ev.Span != nil {
			s.add(spanOf(ev, s, now, ""))
		}
	}
}

// Rejected takes the span of an event that was dealt with otherwise.
func (s *Source) Rejected(ev *transform.Event, reason transform.Reason) {
	if s != nil && ev.Span != nil {
		s.add(spanOf(ev, s, time.Now(), string(reason)))
	}
}

func (e *Exporter) add(span *tracepb.Span) {
	e.mu.Lock()
	switch {
	case e.ended:
		e.drop(DroppedStopped, 1)
	case len(e.queue) >= mostQueued:
		e.drop(DroppedFull, 1)
	default:
		e.queue = append(e.queue, span)
	}
	ready := len(e.queue) >= batchSize
	e.mu.Unlock()
	if ready {
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

// drop counts; the caller holds mu.
func (e *Exporter) drop(reason string, n int) {
	e.dropped += int64(n)
	e.metrics.SpansDropped(reason, n)
	if reason == DroppedFull {
		e.full.Note(digest.Kind{Level: zap.WarnLevel, Message: "spans are dropped: as many as may wait are waiting for the export"})
	}
}

// Run exports until ctx ends, then what is left, for some seconds at most.
func (e *Exporter) Run(ctx context.Context) {
	defer e.full.Flush()
	defer e.to.client.CloseIdleConnections()
	flush, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a request at the end goes on: a second one would repeat its spans
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(flushTimeout, cancel) })()
	retry := backoff.Series{Range: waits}
	var batch []*tracepb.Span
	for ctx.Err() == nil {
		if batch == nil && !e.await(ctx) {
			break
		}
		if batch == nil {
			batch = e.take()
		}
		if e.export(flush, batch) {
			batch = nil
			retry.Reset()
			continue
		}
		_ = retry.Pause(ctx)
	}
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	for {
		if len(batch) == 0 {
			batch = e.take()
		}
		if len(batch) == 0 || !e.export(flush, batch) {
			break
		}
		batch = nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if left := e.sending + len(e.queue); left > 0 {
		e.drop(DroppedStopped, left)
	}
	e.queue, e.sending = nil, 0
}

// await returns once there is a whole batch, or the interval is over and there are spans;
// false: ctx has ended.
func (e *Exporter) await(ctx context.Context) bool {
	timer := time.NewTicker(interval)
	defer timer.Stop()
	for least := batchSize; ; {
		e.mu.Lock()
		enough := len(e.queue) >= least
		e.mu.Unlock()
		if enough {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-e.wake:
		case <-timer.C:
			least = 1
		}
	}
}

// take returns the next batch; nil: no span waits.
func (e *Exporter) take() []*tracepb.Span {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := min(len(e.queue), batchSize)
	if n == 0 {
		return nil
	}
	batch := e.queue[:n:n]
	e.sending = n
	if e.queue = e.queue[n:]; len(e.queue) == 0 {
		e.queue = nil
	}
	return batch
}

// export sends the batch once; false: it may be sent again.
func (e *Exporter) export(ctx context.Context, batch []*tracepb.Span) (done bool) {
	body, err := proto.Marshal(&collectorpb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource:   e.resource,
		ScopeSpans: []*tracepb.ScopeSpans{{Scope: e.scope, Spans: batch, SchemaUrl: schemaURL}},
	}}})
	var rejected int64
	if err == nil {
		rejected, err = e.to.post(ctx, body)
	}
	if err != nil && ctx.Err() != nil {
		return false
	}
	e.mu.Lock()
	if e.failing = err; err == nil || !mayPass(err) {
		e.sending = 0
	}
	switch {
	case err == nil:
		refused := int(min(max(rejected, 0), int64(len(batch))))
		e.exported += int64(len(batch) - refused)
		e.metrics.SpansExported(len(batch) - refused)
		if refused > 0 {
			e.drop(DroppedRefused, refused)
		}
	case !mayPass(err):
		e.drop(DroppedRefused, len(batch))
	}
	e.mu.Unlock()
	if err != nil {
		e.outage.Failed("spans cannot be exported; events are published all the same", err)
		return !mayPass(err)
	}
	e.outage.Over()
	return true
}

// schemaURL names the version of the semantic conventions.
const schemaURL = "https://opentelemetry.io/schemas/1.43.0"

// Status is a part of /status.
type Status struct {
	Endpoint string `json:"endpoint"`
	Exported int64  `json:"spans_exported"`
	Dropped  int64  `json:"spans_dropped"`
	Waiting  int    `json:"spans_waiting"`
	Error    string `json:"error,omitempty"`
}

// Status tells the present state; nil of a nil Exporter.
func (e *Exporter) Status() *Status {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &Status{Endpoint: e.endpoint, Exported: e.exported, Dropped: e.dropped, Waiting: len(e.queue) + e.sending}
	if e.failing != nil {
		s.Error = e.failing.Error()
	}
	return s
}
