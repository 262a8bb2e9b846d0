package poll

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-outbox/cdc-outbox/config"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/drain"
	"github.com/cdc-outbox/cdc-outbox/relay"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// workers is how many claims an instance works on at a time during a backlog: one
// is delivered while another is read or marked. More would wait for the sink.
const workers = 2

// stdoutBuffer bounds the bytes in flight to standard output.
const stdoutBuffer = 4 << 20

// Options are the relay's parts. All are required.
type Options struct {
	// Config has passed validation; source.mode is poll.
	Config config.Config
	// Open opens the sink. It is called again whenever a sink has failed; the
	// relay closes what it returns. It must not block.
	Open    func() (sink.Sink, error)
	Metrics Metrics
	Health  *Health
	Log     *zap.Logger
}

// Relay is one polling connector. Make it with New; Run it once.
type Relay struct {
	cfg      config.Config
	tables   []wal.Table
	outlet   *outlet
	delivery *delivery
	share    *share
	metrics  Metrics
	health   *Health
	log      *zap.Logger

	notified chan struct{} // wakes the first worker
	backlog  chan struct{} // wakes the others
	bytes    int64         // that one worker may hold

	inFlightEvents, inFlightBytes atomic.Int64
	heldBack                      atomic.Int64 // rows that other sessions hold, of the last look at each table; see worker.held
	warned                        sync.Once
}

// New wires the parts; it starts nothing.
func New(o Options) (*Relay, error) {
	r := &Relay{
		cfg:      o.Config,
		delivery: &delivery{policy: o.Config.Errors.OnBadEvent, metrics: o.Metrics, digest: digest.New(o.Log)},
		outlet:   newOutlet(o.Open),
		share:    &share{lanes: o.Config.Source.Poll.Lanes, workers: workers},
		metrics:  o.Metrics,
		health:   o.Health,
		log:      o.Log,
		notified: make(chan struct{}, 1),
		backlog:  make(chan struct{}, workers),
		bytes:    stdoutBuffer / workers,
	}
	if kafka := o.Config.Sink.Kafka; kafka != nil {
		r.bytes = kafka.MaxBufferedBytes / workers
	}
	for _, name := range o.Config.Source.Tables {
		t, err := wal.ParseTable(name)
		if err != nil {
			return nil, fmt.Errorf("source.tables: %w", err)
		}
		r.tables = append(r.tables, t)
	}
	if _, err := transform.New(o.Config.Event, o.Config.Route); err != nil {
		return nil, err
	}
	o.Health.attach(r)
	o.Metrics.Capacity(workers * r.bytes)
	position := func() wal.LSN { return 0 }
	o.Metrics.Observe(position, position, r.inFlightEvents.Load, r.inFlightBytes.Load)
	return r, nil
}

// Run polls until ctx ends; it then finishes the batches in hand, for at most
// errors.drain_timeout, and returns nil. It returns early with an error that it
// cannot mend; the error's failure.Class is the process's exit code.
func (r *Relay) Run(ctx context.Context) error {
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
			if err != nil { // the failure of one ends all
				stopWorking(err)
				stopPolling()
			}
			return err
		})
	}
	var beside sync.WaitGroup
	if channel := r.cfg.Source.Poll.Notify; channel != "" {
		l := &listener{url: r.cfg.Source.URL.Reveal(), channel: channel, wake: r.notified, health: r.health, log: r.log}
		beside.Go(func() { l.run(polling) })
	}
	drained := make(chan struct{})
	beside.Go(func() { r.limitDrain(polling, drained, stopWorking) })

	err := group.Wait()
	stopPolling()
	close(drained)
	beside.Wait()
	r.outlet.close()
	r.delivery.digest.Flush()
	return err
}

// limitDrain gives up on the batches in hand errors.drain_timeout after ctx
// ended, and before where they wait for a topic.
func (r *Relay) limitDrain(ctx context.Context, drained <-chan struct{}, giveUp context.CancelCauseFunc) {
	<-ctx.Done()
	r.health.setRole(relay.RoleStopping)
	if why := drain.Wait(drained, r.cfg.Errors.DrainTimeout, r.health.kafka.MissingTopics); why != nil {
		r.log.Warn("stopped before everything in flight was acked; it will be sent again after the next start",
			zap.Int64("events", r.inFlightEvents.Load()), zap.NamedError("because", why))
		giveUp(errDrained)
	}
}
