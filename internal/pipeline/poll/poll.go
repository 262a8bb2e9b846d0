package poll

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/lease"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// workers is how many claims an instance works on at a time during a backlog: a claim
// is delivered while another is read or marked. More would wait for the sink.
const workers = 2

// Parts are those of a Pipeline. All but Lease are required.
type Parts struct {
	Options
	// URL is the source's connection string.
	URL    string
	Tables []pg.Table
	Event  transform.EventOptions
	Route  transform.RouteOptions
	// OnBadEvent is among the values in package transform.
	OnBadEvent string
	// DrainTimeout bounds how long a stop waits for records in flight, and
	// MaxBufferedBytes the memory of the events in flight.
	DrainTimeout     time.Duration
	MaxBufferedBytes int64
	// Takes tells of values that are kept outside of Kafka, by size; nil: there are none.
	Takes func(bytes int) bool
	// Open opens the sink, again after each failed sink. The pipeline closes all
	// sinks. Must not block.
	Open func() (sink.Sink, error)
	// Lease is of all sinks; nil: they have none.
	Lease   *lease.Lease
	Metrics Metrics
	// Kafka knows the state of the brokers, and outlives the pipeline.
	Kafka *delivery.Downstream
	Log   *zap.Logger
}

// Pipeline polls tables. Make it with New; Run it once.
type Pipeline struct {
	opts         Options
	url          string
	tables       []pg.Table
	event        transform.EventOptions
	route        transform.RouteOptions
	drainTimeout time.Duration
	takes        func(bytes int) bool // see Parts
	sink         *sharedSink
	delivery     *delivery.Delivery
	digest       *digest.Log
	outage       *digest.Outage // of PostgreSQL
	quota        *quota
	metrics      Metrics
	health       *Health
	kafka        *delivery.Downstream
	log          *zap.Logger

	notified chan struct{} // wakes the first worker
	backlog  chan struct{} // wakes the others
	bytes    int64         // bound for a worker's rows

	inFlightEvents, inFlightBytes atomic.Int64
	heldBack                      atomic.Int64 // rows held by other sessions, at the last look at each table; see worker.held
	warned                        sync.Once
}

// New wires the parts; it starts nothing.
func New(p Parts) (*Pipeline, error) {
	if _, err := transform.New(p.Event, p.Route); err != nil {
		return nil, err
	}
	r := &Pipeline{
		opts:         p.Options,
		url:          p.URL,
		tables:       p.Tables,
		event:        p.Event,
		route:        p.Route,
		drainTimeout: p.DrainTimeout,
		takes:        p.Takes,
		digest:       digest.New(p.Log),
		outage:       digest.NewOutage(p.Log, "the session with PostgreSQL works again"),
		sink:         newSharedSink(p.Open, p.Lease),
		quota:        &quota{lanes: p.Lanes, workers: workers},
		metrics:      p.Metrics,
		kafka:        p.Kafka,
		log:          p.Log,
		notified:     make(chan struct{}, 1),
		backlog:      make(chan struct{}, workers),
		bytes:        p.MaxBufferedBytes / workers,
	}
	r.delivery = delivery.New(delivery.Options{
		Policy: p.OnBadEvent, Remedy: stopRemedy, Metrics: p.Metrics, Digest: r.digest, Recent: p.Kafka.Recent, Spans: p.Kafka.Spans,
	})
	r.health = newHealth(p, r)
	p.Metrics.Capacity(workers * r.bytes)
	position := func() pg.LSN { return 0 }
	p.Metrics.Observe(position, position, r.inFlightEvents.Load, r.inFlightBytes.Load)
	return r, nil
}

// stuck is how long the sink has not acknowledged the events in hand.
func (r *Pipeline) stuck() time.Duration { return r.sink.stuck() }

// Health returns the pipeline's health.
func (r *Pipeline) Health() *Health { return r.health }

// Run polls until ctx ends, then finishes the batches in hand, for at most
// errors.drain_timeout, and returns nil. Run returns early with a permanent error; the
// error's failure.Class is the process's exit code.
func (r *Pipeline) Run(ctx context.Context) error {
	polling, stopPolling := context.WithCancel(ctx)
	defer stopPolling()
	working, stopWorking := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopWorking(nil)

	var group errgroup.Group
	for n := range workers {
		w, err := newWorker(working, r, n)
		if err != nil {
			return err
		}
		group.Go(func() error {
			err := w.run(polling)
			if err != nil { // a worker's failure ends all
				stopWorking(err)
				stopPolling()
			}
			return err
		})
	}
	var beside sync.WaitGroup
	if channel := r.opts.Notify; channel != "" {
		l := &listener{url: r.url, channel: channel, wake: r.notified, health: r.health, log: r.log}
		beside.Go(func() { l.run(polling) })
	}
	drained := make(chan struct{})
	beside.Go(func() { r.limitDrain(polling, drained, stopWorking) })

	err := group.Wait()
	stopPolling()
	close(drained)
	beside.Wait()
	r.sink.close()
	r.digest.Flush()
	return err
}

// limitDrain gives up on the batches in hand errors.drain_timeout after ctx
// ended, or earlier if they wait for a missing topic.
func (r *Pipeline) limitDrain(ctx context.Context, drained <-chan struct{}, stopWorking context.CancelCauseFunc) {
	<-ctx.Done()
	r.health.setRole(session.Stopping)
	if why := session.Drain(ctx, drained, r.drainTimeout, r.kafka.MissingTopics); why != nil {
		r.log.Warn("stopped before everything in flight was acked; it will be sent again after the next start",
			zap.Int64("events", r.inFlightEvents.Load()), zap.NamedError("because", why))
		stopWorking(errDrained)
	}
}
