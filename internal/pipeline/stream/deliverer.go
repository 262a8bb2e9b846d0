package stream

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// deliverer moves items from the queue to the sink, and tells the tracker of items
// dealt with. run is its only goroutine.
type deliverer struct {
	queue        *queue
	sink         sink.Sink
	tracker      *checkpoint.Locked
	checkpointer *checkpointer
	linger       time.Duration
	delivery     *delivery.Delivery
	transactions *Transactions // nil: sink
	visibility   *visibility   // nil: events go at once
	warden       *warden       // nil: bad events are not parked
	log          *zap.Logger

	current atomic.Pointer[flight] // the batch in delivery; nil: none
	count   atomic.Uint64          // events dealt with, so far
}

// batchBytes bounds a batch, in proportion to the memory in flight. A batch has no successor
// before its acknowledgement, so the further away the brokers are, the larger the batches of
// a backlog have to be. With near brokers, larger ones are slower.
func batchBytes(limit int64) int64 {
	return min(max(delivery.BatchBytes, limit/(8<<20)*delivery.BatchBytes), transactionBytes)
}

func newDeliverer(p Parts, q *queue, t *checkpoint.Locked, k *checkpointer, lines *digest.Log) *deliverer {
	d := &deliverer{queue: q, sink: p.Sink, tracker: t, checkpointer: k, linger: p.Linger, transactions: p.Transactions, log: p.Log}
	d.warden = newWarden(p.Quarantine, q, p.Log)
	var parks *delivery.Quarantine
	if d.warden != nil {
		parks = d.warden.Parks
	}
	d.delivery = delivery.New(delivery.Options{
		Policy: p.OnBadEvent, Bytes: q.most, Remedy: p.Options.stopRemedy, Metrics: p.Metrics, Digest: lines, Dealt: d.dealt,
		Totals: p.Boundaries.Totals, Recent: p.Kafka.Recent, Spans: p.Kafka.Spans, Quarantine: parks,
	})
	return d
}

// run delivers until the queue is closed and empty (nil), ctx ends (with its
// cause) or the sink fails.
func (d *deliverer) run(ctx context.Context) error {
	defer d.visibility.close()
	var batch []item
	for {
		first, err := d.queue.await(ctx, d.linger)
		if errors.Is(err, errInterrupted) {
			if err := d.commands(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil || first == nil {
			return err
		}
		if err := d.see(ctx, first); err != nil {
			return err
		}
		d.current.Store(&flight{began: time.Now(), oldest: first.CommitTime})
		if err := d.prepare(ctx); err != nil {
			return err
		}
		batch = d.queue.take(batch)
		done, err := d.deliver(ctx, batch)
		d.dealtWith(batch[:done])
		if err != nil {
			return err
		}
		d.current.Store(nil)
	}
}

// see waits until the first event's row can be read, before anything of Kafka waits.
func (d *deliverer) see(ctx context.Context, first *transform.Event) error {
	if d.visibility == nil {
		return nil
	}
	d.current.Store(&flight{oldest: first.CommitTime})
	return d.visibility.await(ctx, first)
}

func (d *deliverer) deliver(ctx context.Context, batch []item) (done int, err error) {
	if d.transactions != nil {
		return d.transact(ctx, batch)
	}
	return d.delivery.Deliver(ctx, d.sink, len(batch), func(i int) *delivery.Item { return &batch[i].Item })
}

// dealt notes that n events of the batch are dealt with. The time of the next ones
// begins now: each dead letter takes a request, so a batch of them may take long.
func (d *deliverer) dealt(n int) {
	d.count.Add(uint64(n))
	if f := d.current.Load(); f != nil {
		d.current.Store(&flight{began: time.Now(), oldest: f.oldest})
	}
}

// total is the number of events dealt with, so far.
func (d *deliverer) total() uint64 { return d.count.Load() }

// last is the last event dealt with.
func (d *deliverer) last() *delivery.Last { return d.delivery.Last() }

// flight is a batch on its way.
type flight struct {
	began  time.Time // of the delivery of the events left; zero: not yet
	oldest time.Time // commit time of the first event
}

// stuck is how long the delivery in progress has had no acknowledgement, and lag how
// long ago its first event was committed. Both are 0 without a delivery.
func (d *deliverer) stuck() time.Duration {
	if f := d.current.Load(); f != nil && !f.began.IsZero() {
		return time.Since(f.began)
	}
	return 0
}

func (d *deliverer) lag() time.Duration {
	if f := d.current.Load(); f != nil && !f.oldest.IsZero() { // zero: a message of no transaction
		return max(0, time.Since(f.oldest))
	}
	return 0
}

// dealtWith reports items, perhaps none, as dealt with, transaction by transaction,
// and gives their memory back: nobody reads an event afterwards.
func (d *deliverer) dealtWith(batch []item) {
	var bytes int64
	for i := 0; i < len(batch); {
		ticket, n := batch[i].ticket, 0
		for ; i < len(batch) && batch[i].ticket == ticket; i++ {
			bytes += batch[i].memory
			n++
		}
		d.tracker.Done(ticket, n)
	}
	d.checkpointer.initial.done(batch)
	for i := range batch {
		batch[i].Event.Release()
	}
	for i := 0; i < len(batch); {
		chunk, n := batch[i].chunk, 0
		for ; i < len(batch) && batch[i].chunk == chunk; i++ {
			n++
		}
		chunk.Release(n)
	}
	clear(batch)
	d.queue.free(bytes)
	d.checkpointer.event()
}

// stopRemedy names every way past a bad event, beginning with its publication.
func (o *Options) stopRemedy(ev *transform.Event, bad *transform.BadEvent) string {
	remedy := delivery.PastBadEvent(bad)
	if ofSnapshot(ev) {
		return remedy
	}
	return remedy + o.skipRemedy(ev.Position.CommitLSN)
}
