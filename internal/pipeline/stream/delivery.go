package stream

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// batchBytes is how much is handed to the sink at a time: enough for a full
// Kafka batch, little enough that acks come often.
const batchBytes = 768 << 10

// delivery moves items from the queue to the sink and reports what is dealt
// with to the tracker. run is its only goroutine.
type delivery struct {
	queue   *queue
	sink    sink.Sink
	tracker *checkpoint.Locked
	keeper  *keeper
	policy  string
	linger  time.Duration
	metrics Metrics
	digest  *digest.Log

	current atomic.Pointer[flight] // the batch in delivery; nil: none
	settled atomic.Uint64          // events dealt with, so far
	last    atomic.Pointer[LastEvent]
	events  []*transform.Event // reused
}

// run delivers until the queue is closed and empty (nil), ctx ends (its cause)
// or the sink fails.
func (d *delivery) run(ctx context.Context) error {
	var batch []item
	for {
		var err error
		batch, err = d.queue.take(ctx, d.linger, batch)
		if err != nil || len(batch) == 0 {
			return err
		}
		d.current.Store(&flight{began: time.Now(), oldest: batch[0].event.CommitTime})
		done, err := d.deliver(ctx, batch)
		d.settle(batch[:done])
		if err != nil {
			return err
		}
		d.current.Store(nil)
	}
}

// dealt notes that n events of the batch are dealt with. Those behind them begin
// to wait now: a batch of dead letters takes a request for each.
func (d *delivery) dealt(n int) {
	d.settled.Add(uint64(n))
	if f := d.current.Load(); f != nil {
		d.current.Store(&flight{began: time.Now(), oldest: f.oldest})
	}
}

// flight is a batch on its way.
type flight struct {
	began  time.Time // of the delivery of what is not dealt with yet
	oldest time.Time // commit time of the first event
}

// stuck is for how long nothing was acknowledged of the delivery in progress, and
// lag how long ago its first event was committed; both are 0 where there is none.
func (d *delivery) stuck() time.Duration {
	if f := d.current.Load(); f != nil {
		return time.Since(f.began)
	}
	return 0
}

func (d *delivery) lag() time.Duration {
	if f := d.current.Load(); f != nil && !f.oldest.IsZero() { // zero: a message of no transaction
		return max(0, time.Since(f.oldest))
	}
	return 0
}

// deliver writes the batch's events in order, each bad one between its
// neighbours. It returns how many of them, from the front, are dealt with.
func (d *delivery) deliver(ctx context.Context, batch []item) (done int, err error) {
	d.events = d.events[:0]
	for i := range batch {
		it := &batch[i]
		if it.bad == nil {
			d.events = append(d.events, it.event)
			continue
		}
		if err := d.flush(ctx); err != nil {
			return done, err
		}
		done = i
		if err := d.reject(ctx, it.event, it.bad); err != nil {
			return done, err
		}
		done++
	}
	if err := d.flush(ctx); err != nil {
		return done, err
	}
	return len(batch), nil
}

func (d *delivery) flush(ctx context.Context) error {
	if len(d.events) == 0 {
		return nil
	}
	published := d.events
	var rejected map[*transform.Event]bool
	err := d.sink.Deliver(ctx, d.events, func(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error {
		if rejected == nil {
			rejected = map[*transform.Event]bool{}
		}
		rejected[ev] = true
		return d.reject(ctx, ev, bad)
	})
	if err != nil {
		return fmt.Errorf("deliver: %w", err)
	}
	if len(rejected) > 0 {
		published = slices.DeleteFunc(slices.Clone(d.events), func(ev *transform.Event) bool { return rejected[ev] })
	}
	d.metrics.Published(published)
	d.dealt(len(published))
	if len(published) > 0 {
		d.last.Store(LastOf(published))
	}
	clear(d.events)
	d.events = d.events[:0]
	return nil
}

// settle reports items, which may be none, as dealt with, one transaction at a time, and gives
// its memory back: nobody reads an event after this.
func (d *delivery) settle(batch []item) {
	var bytes int64
	for i := 0; i < len(batch); {
		ticket, n := batch[i].ticket, 0
		for ; i < len(batch) && batch[i].ticket == ticket; i++ {
			bytes += batch[i].memory
			n++
		}
		d.tracker.Done(ticket, n)
	}
	for i := range batch {
		batch[i].event.Release()
	}
	for i := 0; i < len(batch); {
		chunk, n := batch[i].chunk, 0
		for ; i < len(batch) && batch[i].chunk == chunk; i++ {
			n++
		}
		chunk.Release(n)
	}
	clear(batch)
	d.queue.release(bytes)
	d.keeper.event()
}

// reject carries out errors.on_bad_event.
func (d *delivery) reject(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error {
	fields := []zap.Field{
		zap.String("reason", string(bad.Reason)),
		zap.String("table", ev.Table),
		zap.String("event_id", ev.Name()),
		zap.Stringer("lsn", ev.Position.CommitLSN),
		zap.Uint32("seq", ev.Position.Seq),
		zap.Error(bad.Err),
	}
	switch {
	case bad.Reason == transform.ReasonPassedOver:
		d.metrics.Skipped(bad.Reason)
		d.digest.Note(digest.Kind{Level: zap.WarnLevel, Message: "event passed over with its transaction, as setup --skip-to asked", Detail: string(bad.Reason)}, fields...)
		return nil
	case d.policy == transform.BadEventDeadLetter:
		if err := d.sink.DeadLetter(ctx, ev, bad); err != nil {
			return fmt.Errorf("event %s: %w", ev.Name(), err)
		}
		d.metrics.DeadLettered(bad.Reason)
		d.dealt(1)
		d.digest.Note(digest.Kind{Level: zap.WarnLevel, Message: "event written to the dead-letter topic", Detail: string(bad.Reason)}, fields...)
		return nil
	case d.policy == transform.BadEventSkip:
		d.metrics.Skipped(bad.Reason)
		d.dealt(1)
		d.digest.Note(digest.Kind{Level: zap.WarnLevel, Message: "event skipped, as errors.on_bad_event says", Detail: string(bad.Reason)}, fields...)
		return nil
	}
	return failure.Configf(stopRemedy(ev, bad),
		"bad event %s of %s at %s/%d: %w", ev.Name(), ev.Table, ev.Position.CommitLSN, ev.Position.Seq, bad)
}

// stopRemedy names every way past a bad event. What the log says of a row cannot
// be corrected any more.
func stopRemedy(ev *transform.Event, bad *transform.BadEvent) string {
	cause := "correct the cause"
	if bad.Reason == transform.ReasonMissingColumn {
		cause = "its table had other columns when the row was written: " + failure.RemedyOf(bad.Err)
	}
	remedy := cause + ", and start again: nothing after the event was confirmed; " +
		"or set errors.on_bad_event to dead_letter (keeps it in errors.dead_letter_topic) or skip"
	if snapshot := ev.XID == 0 && !ev.CommitTime.IsZero(); snapshot {
		return remedy
	}
	return remedy + fmt.Sprintf("; or pass over its transaction: `cdc-outbox setup --accept-gap --skip-to %s --yes`", ev.Position.CommitLSN)
}
