// Package stream is the source for a slot: it makes events of the rows, delivers
// them, and confirms acknowledged positions.
//
// Run owns and joins all of its goroutines:
//
//	intake        Run's own: reads the stream, routes, fills the queue
//	monitor       one per session, on its own connection: watches slot and publication
//	retention     one per session, on its own connection, if configured
//	deliverer     empties the queue into the sink, tells the tracker
//	checkpointer  saves the tracker's position, then has it confirmed
//	warden        reads commands to the quarantine, if configured
//
// (wal.Stream owns another, for the standby status.)
//
// Invariants:
//
//  1. An LSN is saved in a checkpoint only after every event of every transaction
//     up to there was acked, dead lettered or skipped by order. The LSN is
//     confirmed only after the save.
//
//  2. Blocked delivery blocks the intake, never the standby status. A save
//     waiting for a broker blocks neither health nor monitor, and a stop only for a
//     Kafka transaction, within limits.close.
//
//  3. Bytes between the slot and the broker's ack are bounded by the queue.
//
//  4. A permanent error ends Run with its class; no undelivered event is marked
//     as done on the way out.
//
//  5. If another instance has read the slot, the pipeline drops the events in
//     flight, saves nothing more, and ends with ErrTakenOver.
//
//  6. With Transactions, events and their checkpoint share a Kafka transaction.
//     After an unknown outcome the pipeline ends as in 5, with ErrBeginAnew. With
//     Boundaries, no transaction of the database is split over two of Kafka.
//
// Non-goals: several pipelines in one process.
package stream

import (
	"context"
	"errors"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/lease"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Parts are those of a Pipeline. All are required, unless said otherwise, but of
// Sink and Transactions only one.
type Parts struct {
	Options
	Router *transform.Router
	Sink   sink.Sink
	// Lease is Sink's, held together with the slot. nil: the sink has none.
	Lease *lease.Lease
	// Quarantine is required by OnBadEvent quarantine.
	Quarantine *Quarantine
	// Left is the error of events parked in the topic, if the topic is out of use. nil: there
	// is no Kafka.
	Left func(ctx context.Context, topic string) error
	// LeftBehind is the error of a connector of the same tables under another name with
	// parked events or an accepted gap. nil: nobody asks.
	LeftBehind func(ctx context.Context, f *checkpoint.Former) error
	// Transactions make the delivery exactly once.
	Transactions *Transactions
	Store        checkpoint.Store
	Metrics      Metrics
	// Repairer mends losses of log. nil: such a loss ends the pipeline.
	Repairer Repairer
	// Routes tells why events would find no topic, or another cluster than that of ends.
	// Optional.
	Routes func(ctx context.Context, ends checkpoint.Ends) error
	// Past is the Past of an earlier pipeline, if any ended with ErrBeginAnew.
	Past Past
	// Kafka knows the state of the brokers, and outlives the pipeline.
	Kafka *delivery.Downstream
	Log   *zap.Logger
}

// Pipeline reads one slot. Make it with New; Run it once.
type Pipeline struct {
	queue        *queue
	tracker      *checkpoint.Locked
	checkpointer *checkpointer
	delivery     *deliverer
	intake       *intake
	source       *source
	health       *Health
	digest       *digest.Log
	log          *zap.Logger
}

// New wires the parts, and starts nothing. The pipeline does not close them.
func New(p Parts) *Pipeline { return newPipeline(p, usual) }

func newPipeline(p Parts, l limits) *Pipeline {
	r := &Pipeline{
		queue:   newQueue(p.MaxBufferedBytes),
		tracker: checkpoint.NewLocked(0),
		digest:  digest.New(p.Log),
		log:     p.Log,
	}
	r.queue.most = batchBytes(p.MaxBufferedBytes)
	saves := p.Store
	if p.Transactions != nil {
		saves = inTransactions{p.Store, p.Transactions, func() bool { return r.source.mayEnd() }}
		r.queue.most = transactionBytes
	}
	r.checkpointer = newCheckpointer(bounded{saves, l.store}, r.tracker, p.Checkpoint.Interval, p.Metrics, p.Log)
	r.checkpointer.quiet = l.quiet
	if p.Transactions != nil {
		r.checkpointer.apart = max(r.checkpointer.apart, transactionsApart)
	}
	compare := func(context.Context, checkpoint.Ends) error { return nil }
	if p.Transactions != nil {
		compare = p.Transactions.Sink.Compare
	} else if out, ok := p.Sink.(acknowledged); ok {
		compare, r.checkpointer.ends = out.Compare, out.Ends
	}
	r.delivery = newDeliverer(p, r.queue, r.tracker, r.checkpointer, r.digest)
	seen := newVisibility(&p.Options, p.Log)
	if r.delivery.visibility = seen; seen != nil {
		r.queue.public = seen.public
	}
	tables := newOutboxTables(p.Tables, r.checkpointer)
	in := newIntake(p, tables, r.queue, r.tracker, r.checkpointer, r.digest)
	in.visibility = seen
	r.intake = in
	r.health = newHealth(p, r, in, l)
	r.source = &source{
		opts:         p.Options,
		checkpointer: r.checkpointer,
		kept:         p.Store,
		repairer:     p.Repairer,
		deliverer:    r.delivery,
		transactions: p.Transactions,
		health:       r.health,
		metrics:      p.Metrics,
		compare:      compare,
		routes:       p.Routes,
		left:         p.Left,
		leftBehind:   p.LeftBehind,
		limits:       l,
		log:          p.Log,
		outage:       digest.NewOutage(p.Log, "the session with PostgreSQL works again"),
		unfit:        digest.NewOutage(p.Log, "this spare could take over again"),
		lease:        p.Lease,
		router:       p.Router,
		intake:       in,
		tables:       tables,
		digest:       r.digest,
		visibility:   seen,
		phase:        r.health.phase,
		warden:       r.delivery.warden,
	}
	in.recognised = r.source.recognised
	if p.Router.Describes() {
		in.describe = r.source.describe
	}
	h := r.health
	p.Metrics.Observe(h.received, h.confirmed, h.inFlight, r.queue.bytes)
	p.Metrics.Capacity(p.MaxBufferedBytes)
	p.Metrics.ObserveUnconfirmed(h.unconfirmed)
	p.Metrics.ObserveStandstill(h.failures)
	p.Metrics.ObserveCheckpoint(h.checkpointAge)
	p.Metrics.ObserveInvisible(seen.waiting)
	p.Metrics.ObserveRepair(h.repairAhead)
	p.Metrics.ObserveGap(h.gapAge)
	p.Metrics.ObserveSnapshot(h.snapshotProgress)
	return r
}

// Health returns the pipeline's health.
func (r *Pipeline) Health() *Health { return r.health }

// errDrained ends the workers after their last event.
var errDrained = errors.New("drained")

// Run runs the connector until ctx ends. Run then stops reading, drains events in
// flight for at most errors.drain_timeout, confirms the last position and returns
// nil. Run returns early with a permanent error; the worst error's failure.Class
// is the process's exit code. After ErrBeginAnew, a transient error, a new
// Pipeline may stand by; after ErrToRepair, a loss, it may repair.
func (r *Pipeline) Run(ctx context.Context) error {
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	working, stopWorking := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopWorking(nil)

	var workers errgroup.Group
	work := func(run func(context.Context) error) error { // a worker's failure ends all
		err := run(working)
		if err == nil || errors.Is(err, context.Cause(working)) {
			return nil
		}
		stopWorking(err)
		stopReading()
		return err
	}
	delivered := make(chan struct{})
	workers.Go(func() error {
		defer close(delivered)
		return work(func(ctx context.Context) error { return r.checkpointer.remember(r.delivery.run(ctx)) })
	})
	if w := r.delivery.warden; w != nil {
		workers.Go(func() error { return work(w.follow) })
	}
	var unsavable error // why no checkpoint can be saved any more
	workers.Go(func() error {
		return work(func(ctx context.Context) error { unsavable = r.checkpointer.run(ctx); return unsavable })
	})

	r.source.stopping = func() bool { return ctx.Err() != nil }
	err := r.source.run(reading)
	r.health.stopping()
	if errors.Is(err, ErrBeginAnew) {
		stopWorking(err)
	}
	if err == nil && r.source.repeats() && r.intake.within() {
		r.log.Warn("stopped in the middle of a transaction; what was read of it will be sent again after the next start")
	}
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	var holder sync.WaitGroup
	holder.Go(func() { r.source.hold(holding) })
	r.drain(ctx, stopWorking, delivered)
	release()
	holder.Wait()
	r.rest(ctx, stopWorking)
	err = failure.Join(err, workers.Wait())
	r.digest.Flush()

	finish := []func(context.Context){func(ctx context.Context) { r.checkpointer.finish(ctx, unsavable) }, r.source.close}
	if errors.Is(err, ErrBeginAnew) {
		finish = finish[1:] // the checkpoint may belong to another instance now
	}
	for _, last := range finish {
		ending, cancel := r.source.ending(ctx)
		last(ending)
		cancel()
	}
	return err
}

// rest ends the workers. A save under way in a Kafka transaction may end first. Cut short, the
// transaction would stop the sink before the last checkpoint, and stay open until the claim of
// the slot's next holder.
func (r *Pipeline) rest(ctx context.Context, stopWorking context.CancelCauseFunc) {
	defer stopWorking(errDrained)
	if r.source.transactions == nil {
		return
	}
	ending, cancel := r.source.ending(ctx)
	defer cancel()
	_ = r.checkpointer.exclusive(ending, func() error { stopWorking(errDrained); return nil })
}
