// Package delivery is the common part of both sources: it hands events to the sink in
// order, deals with bad events as errors.on_bad_event says, and counts and logs the
// outcome of each.
//
// Invariants:
//
//  1. An event is dealt with when it is durable in the sink, when its dead
//     letter is durable, when it is parked durably, or when it is skipped by
//     order of an operator. Nothing else counts.
//  2. Events are dealt with in order: all before the first failure, none behind.
//
// Non-goals: confirming, marking rows, deciding when to try again.
package delivery

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/tracing"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// BatchBytes are enough for a full Kafka batch, but few enough for frequent
// acknowledgements.
const BatchBytes = 768 << 10

// Item is an event; Bad is set if the event could not become a record.
type Item struct {
	Event *transform.Event
	Bad   *transform.BadEvent
	Size  int64 // of the record, in bytes: see SizeOf
	// Joined to the next item: Transact deals with both, or with none.
	Joined bool
	// Whole is set if all events of the item's transaction are joined.
	Whole bool

	refused bool // Bad is of the sink: the event has a record
}

// SizeOf is the number of bytes in the event's record, without a value that takes says is kept
// elsewhere: such values are written several at a time, those of a batch.
func SizeOf(ev *transform.Event, takes func(bytes int) bool) int64 {
	size := ev.Size()
	if value := len(ev.Record.Value); takes != nil && takes(value) {
		size -= int64(value)
	}
	return size
}

// Metrics is told the outcome of events. It must not block.
type Metrics interface {
	// Published is told of events just acknowledged by the broker.
	Published(events []*transform.Event)
	DeadLettered(reason transform.Reason)
	Skipped(reason transform.Reason)
	// Warned counts events published, but not in the form asked for.
	Warned(w transform.Warning)
}

// Options are a Delivery's. All but Totals, Dealt, Recent, Spans and
// Quarantine are required.
type Options struct {
	// Policy is errors.on_bad_event.
	Policy string
	// Remedy names the ways past a bad event where Policy is to stop.
	Remedy  func(*transform.Event, *transform.BadEvent) string
	Metrics Metrics
	Digest  *digest.Log
	// Bytes bounds the events handed to the sink at a time; 0: BatchBytes.
	Bytes int64
	// Totals has Transact write how many records a whole transaction has.
	Totals bool
	// Dealt is called from Deliver, each time some more events are dealt with.
	Dealt func(n int)
	// Recent remembers the last events dealt with; nil without a reader.
	Recent *Recent
	// Spans takes the spans of events; nil where there are none.
	Spans *tracing.Source
	// Quarantine is required where Policy is to park bad events, and nil elsewhere.
	Quarantine *Quarantine
}

// Delivery hands events to a sink. A single goroutine uses it at a time; Last
// may be called by any.
type Delivery struct {
	opts Options
	last atomic.Pointer[Last]
	run  []*transform.Event // reused

	parking parking // reused
}

// New returns a Delivery.
func New(opts Options) *Delivery {
	if opts.Dealt == nil {
		opts.Dealt = func(int) {}
	}
	if opts.Bytes == 0 {
		opts.Bytes = BatchBytes
	}
	return &Delivery{opts: opts}
}

// Deliver writes n items in order, each bad item between its neighbours; at returns the
// item of an index. Deliver returns how many items, from the front, are dealt with, and
// keeps none of their events. A refused item becomes bad.
func (d *Delivery) Deliver(ctx context.Context, out sink.Sink, n int, at func(i int) *Item) (done int, err error) {
	defer func() {
		clear(d.run)
		d.run = d.run[:0]
	}()
	if d.opts.Quarantine != nil {
		return d.deliverParking(ctx, out, n, at)
	}
	for done < n {
		next := 1
		if it := at(done); it.Bad != nil {
			err = d.reject(ctx, out, it.Event, it.Bad)
		} else {
			next = d.fill(done, n, at)
			err = d.write(ctx, out, func(i int) *Item { return at(done + i) })
		}
		if err != nil {
			return done, err
		}
		done += next
	}
	return done, nil
}

// fill puts items into the next run: from the good item at begin up to a bad item, or
// Bytes. It returns the number of items.
func (d *Delivery) fill(begin, end int, at func(i int) *Item) int {
	var bytes int64
	clear(d.run)
	d.run = d.run[:0]
	for i := begin; i < end; i++ {
		it := at(i)
		if bytes += it.Size; it.Bad != nil || i > begin && bytes > d.opts.Bytes {
			break
		}
		d.run = append(d.run, it.Event)
	}
	return len(d.run)
}

// write writes the run; at returns its items.
func (d *Delivery) write(ctx context.Context, out sink.Sink, at func(i int) *Item) error {
	events, refused := d.run, false
	err := out.Deliver(ctx, events, func(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error {
		at(slices.Index(events, ev)).Bad, refused = bad, true
		return d.reject(ctx, out, ev, bad)
	})
	if err != nil {
		return fmt.Errorf("deliver: %w", err)
	}
	if refused {
		events = nil
		for i, ev := range d.run {
			if at(i).Bad == nil {
				events = append(events, ev)
			}
		}
	}
	d.published(events)
	return nil
}

func (d *Delivery) published(events []*transform.Event) {
	for _, ev := range events {
		if ev.Warning != "" {
			d.opts.Metrics.Warned(ev.Warning)
			d.note("event is published, but not as one would expect", string(ev.Warning), ev, zap.String("warning", string(ev.Warning)))
		}
	}
	d.opts.Metrics.Published(events)
	d.opts.Spans.Published(events)
	d.opts.Dealt(len(events))
	if len(events) > 0 {
		if d.last.Swap(lastOf(events)) == nil {
			first := digest.Kind{Level: zap.InfoLevel, Message: "the first event since the start is published"}
			d.opts.Digest.Note(first, zap.String("topic", events[0].Record.Topic))
		}
		d.opts.Recent.published(events)
	}
}

// Last is the last event published, or nil.
func (d *Delivery) Last() *Last {
	last := d.last.Load()
	if last == nil || d.opts.Recent == nil || !d.opts.Recent.anonymous {
		return last
	}
	anonymous := *last
	anonymous.ID = ""
	return &anonymous
}

// skips and buries tell the fate of a bad event. An event neither skipped nor buried
// stops the pipeline.
func (d *Delivery) skips(bad *transform.BadEvent) bool {
	return bad.Reason == transform.ReasonPassedOver || d.opts.Policy == transform.BadEventSkip
}

func (d *Delivery) buries(bad *transform.BadEvent) bool {
	return d.opts.Policy == transform.BadEventDeadLetter && !d.skips(bad)
}

// reject carries out errors.on_bad_event.
func (d *Delivery) reject(ctx context.Context, out sink.Sink, ev *transform.Event, bad *transform.BadEvent) error {
	switch {
	case d.skips(bad):
	case d.buries(bad):
		if err := out.DeadLetter(ctx, ev, bad); err != nil {
			return fmt.Errorf("event %s: %w", ev.Name(), err)
		}
	default:
		return d.stopped(ev, bad)
	}
	d.rejected(ev, bad)
	return nil
}

// rejected counts and logs a bad event dealt with.
func (d *Delivery) rejected(ev *transform.Event, bad *transform.BadEvent) {
	var message string
	switch {
	case bad.Reason == transform.ReasonPassedOver:
		message = "event passed over with its transaction, as setup --skip-to asked"
		d.opts.Metrics.Skipped(bad.Reason)
	case d.opts.Policy == transform.BadEventSkip:
		message = "event skipped, as errors.on_bad_event says"
		d.opts.Metrics.Skipped(bad.Reason)
	default:
		message = "event written to the dead-letter topic"
		d.opts.Metrics.DeadLettered(bad.Reason)
	}
	d.opts.Recent.rejected(ev, bad, message)
	d.opts.Spans.Rejected(ev, bad.Reason)
	d.opts.Dealt(1)
	d.note(message, string(bad.Reason), ev, zap.String("reason", string(bad.Reason)), zap.Error(bad.Err))
}

// stopped is the error of a bad event that stops the pipeline.
func (d *Delivery) stopped(ev *transform.Event, bad *transform.BadEvent) error {
	at := ""
	if p := ev.Position; !p.IsZero() {
		at = fmt.Sprintf(" at %s/%d", p.CommitLSN, p.Seq)
	}
	return failure.Configf(d.opts.Remedy(ev, bad), "bad event %s of %s%s: %w", ev.Name(), ev.Table, at, bad)
}

// PastBadEvent names the ways past a bad event after a stop.
func PastBadEvent(bad *transform.BadEvent) string {
	const past = "set errors.on_bad_event to dead_letter (keeps it in errors.dead_letter_topic) or skip (leaves it out)"
	way := bad.Remedy()
	switch {
	case way == "":
		return "no setting publishes it as it is: " + past
	case bad.Reason == transform.ReasonMissingColumn:
		way = "its table had other columns when the row was written: " + way
	}
	return way + "; or " + past
}

// note logs the outcome of an event.
func (d *Delivery) note(message, detail string, ev *transform.Event, fields ...zap.Field) {
	fields = append(fields, zap.String("table", ev.Table), zap.String("event_id", ev.Name()))
	if p := ev.Position; !p.IsZero() {
		fields = append(fields, zap.Stringer("lsn", p.CommitLSN), zap.Uint32("seq", p.Seq))
	}
	d.opts.Digest.Note(digest.Kind{Level: zap.WarnLevel, Message: message, Detail: detail}, fields...)
}
