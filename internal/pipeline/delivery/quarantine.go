package delivery

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/quarantine"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Behind is the reason of a good event that is parked.
const Behind transform.Reason = "behind"

// Quarantine parks bad events, and the events behind them. The goroutine of the delivery uses
// it; Set may be called by any.
type Quarantine struct {
	// Parked is told of each event parked. It must not block.
	Parked func(transform.Reason)
	// Largest is the most bytes of a parked event, beside a value that Takes says is kept
	// elsewhere; a nil Takes has none.
	Largest int64
	Takes   func(bytes int) bool

	set  atomic.Pointer[quarantine.Set]
	held map[quarantine.Unit]bool // refused by the delivery under way
}

// Use sets what is parked, before the first event is delivered.
func (q *Quarantine) Use(set *quarantine.Set) { q.set.Store(set) }

// Set is what is parked; nil before it is known.
func (q *Quarantine) Set() *quarantine.Set { return q.set.Load() }

// Holds tells the sink that an event before this one was refused in the same delivery.
func (q *Quarantine) Holds(ev *transform.Event) bool {
	if len(q.held) == 0 {
		return false
	}
	unit, alone := quarantine.UnitOf(ev)
	return !alone && q.held[unit]
}

// Hold holds back the rest of a unit until Free.
func (q *Quarantine) Hold(unit quarantine.Unit) {
	if q.held == nil {
		q.held = make(map[quarantine.Unit]bool)
	}
	q.held[unit] = true
}

// Free ends all holds.
func (q *Quarantine) Free() { clear(q.held) }

// aside is an event that is not published.
type aside struct {
	event *transform.Event
	bad   *transform.BadEvent // nil for a good event behind another
	known bool                // it was parked before
}

// parking is a run of items: what is written, and what is put aside.
type parking struct {
	d       *Delivery
	attempt *quarantine.Attempt
	good    []*transform.Event // to be published
	write   []*transform.Event // of Deliver: good events, and records of parked ones
	aside   []aside
	parked  map[*transform.Event]bool // the records of parked ones in write
	late    []*transform.Event        // records of events refused by the sink
	refused map[*transform.Event]bool // in good
}

// park begins a run, in the memory of the last.
func (d *Delivery) park() *parking {
	p := &d.parking
	p.forget()
	p.d, p.attempt = d, d.opts.Quarantine.Set().Try(time.Now())
	return p
}

// forget keeps no event of the run.
func (p *parking) forget() {
	clear(p.good)
	clear(p.write)
	*p = parking{good: p.good[:0], write: p.write[:0]}
}

// take decides about an item, and returns the event to write, if any: the item's own, or the
// record of a parked event. An error stops the pipeline at the item.
func (p *parking) take(it *Item) (write *transform.Event, err error) {
	switch {
	case it.Bad != nil && p.d.skips(it.Bad):
		p.aside = append(p.aside, aside{event: it.Event, bad: it.Bad})
		return nil, nil
	case it.Bad == nil && !p.attempt.Holds(it.Event):
		p.good = append(p.good, it.Event)
		return it.Event, nil
	}
	return p.put(it.Event, it.Bad, it.refused)
}

// place is how far a run is planned.
type place struct{ good, aside, parked int }

// mark and back take back the last items; no more may be taken then. Without a quarantine they
// do nothing.
func (p *parking) mark() place {
	if p == nil {
		return place{}
	}
	return place{len(p.good), len(p.aside), p.attempt.Mark()}
}

func (p *parking) back(to place) {
	if p == nil {
		return
	}
	p.good, p.aside = p.good[:to.good], p.aside[:to.aside]
	p.attempt.Back(to.parked)
}

// put parks an event, and returns the record to write; nil: the event was parked before.
func (p *parking) put(ev *transform.Event, bad *transform.BadEvent, whole bool) (*transform.Event, error) {
	mark := p.attempt.Mark()
	rec, fate, err := p.attempt.Park(ev, bad, whole)
	switch {
	case err != nil:
		return nil, err
	case fate == quarantine.Full:
		return nil, p.d.full(ev, bad)
	case rec != nil && SizeOf(rec, p.d.opts.Quarantine.Takes) > p.d.opts.Quarantine.Largest:
		p.attempt.Back(mark) // the run goes on without the event
		return nil, p.d.unparkable(ev, fmt.Errorf("%d bytes are more than a request to Kafka may have", rec.Size()))
	case rec != nil:
		if p.parked == nil {
			p.parked = make(map[*transform.Event]bool)
		}
		p.parked[rec] = true
	}
	p.aside = append(p.aside, aside{ev, bad, fate == quarantine.Known})
	return rec, nil
}

// crowded tells that a good event of the run is of the same topic and key as the bad one: the
// sink may still refuse the good one, which then must be parked first.
func (p *parking) crowded(bad *transform.Event) bool {
	key, _ := bad.Plain()
	for _, ev := range p.good {
		if other, _ := ev.Plain(); ev.Record.Topic == bad.Record.Topic && string(other) == string(key) {
			return true
		}
	}
	return false
}

// reject is the sink's: it parks an event refused, or held behind a refused one.
func (p *parking) reject(_ context.Context, ev *transform.Event, bad *transform.BadEvent) error {
	if p.parked[ev] {
		return p.d.unparkable(ev, bad)
	}
	if errors.Is(bad.Err, sink.ErrHeld) {
		bad = nil
	} else if unit, alone := quarantine.UnitOf(ev); !alone {
		p.d.opts.Quarantine.Hold(unit)
	}
	rec, err := p.put(ev, bad, true)
	if err != nil {
		return err
	}
	if rec != nil {
		p.late = append(p.late, rec)
	}
	if p.refused == nil {
		p.refused = make(map[*transform.Event]bool)
	}
	p.refused[ev] = true
	return nil
}

// deliverParking is Deliver where bad events are parked.
func (d *Delivery) deliverParking(ctx context.Context, out sink.Sink, n int, at func(i int) *Item) (done int, err error) {
	defer d.opts.Quarantine.Free()
	for done < n {
		p := d.park()
		next, err := p.fill(done, n, d.opts.Bytes, at)
		if next == done {
			return done, err
		}
		if len(p.write) > 0 {
			err = out.Deliver(ctx, p.write, p.reject)
		}
		if err == nil && len(p.late) > 0 {
			err = out.Deliver(ctx, p.late, func(_ context.Context, ev *transform.Event, bad *transform.BadEvent) error {
				return d.unparkable(ev, bad)
			})
		}
		if err != nil {
			return done, fmt.Errorf("deliver: %w", err)
		}
		p.done()
		d.opts.Quarantine.Free()
		done = next
	}
	return done, nil
}

// fill takes items from the good or bad item at begin on, up to most bytes, and returns the
// item to go on with. An error is that of this item.
func (p *parking) fill(begin, end int, most int64, at func(i int) *Item) (next int, err error) {
	var bytes int64
	for next = begin; next < end; next++ {
		it := at(next)
		if bytes += it.Size; next > begin && bytes > most {
			return next, nil
		}
		if it.Bad != nil && p.crowded(it.Event) {
			return next, nil
		}
		write, err := p.take(it)
		if err != nil {
			if next > begin {
				err = nil // the item is the first of the next run
			}
			return next, err
		}
		if write != nil {
			p.write = append(p.write, write)
		}
	}
	return next, nil
}

// done counts and logs a run that is durable.
func (p *parking) done() {
	p.attempt.Done()
	published := p.good
	if len(p.refused) > 0 {
		published = published[:0]
		for _, ev := range p.good {
			if !p.refused[ev] {
				published = append(published, ev)
			}
		}
	}
	p.d.published(published)
	for _, a := range p.aside {
		p.d.putAside(a)
	}
	p.forget()
}

// Released counts events published from the quarantine.
func (d *Delivery) Released(events []*transform.Event) { d.published(events) }

// putAside counts and logs an event that is not published.
func (d *Delivery) putAside(a aside) {
	switch {
	case a.bad != nil && d.skips(a.bad):
		d.rejected(a.event, a.bad)
		return
	case a.bad == nil:
		a.bad = &transform.BadEvent{Reason: Behind, Err: errBehind}
	}
	message := "event parked in the quarantine, with its key"
	switch {
	case a.known:
		message = "event is in the quarantine already"
	case a.bad.Reason == Behind:
		message = "event parked behind another of its key"
	}
	if !a.known {
		d.opts.Quarantine.Parked(a.bad.Reason)
	}
	d.opts.Recent.rejected(a.event, a.bad, message)
	if !a.known {
		d.opts.Spans.Rejected(a.event, a.bad.Reason)
	}
	d.opts.Dealt(1)
	d.note(message, string(a.bad.Reason), a.event, zap.String("reason", string(a.bad.Reason)), zap.Error(a.bad.Err))
}

var errBehind = errors.New("an event of its key is in the quarantine")

// full is the error of an event without room in the quarantine.
func (d *Delivery) full(ev *transform.Event, bad *transform.BadEvent) error {
	if bad == nil {
		bad = &transform.BadEvent{Reason: Behind, Err: errBehind}
	}
	set := d.opts.Quarantine.Set()
	return failure.Configf("see `cdc-outbox quarantine list`; correct the cause, command `cdc-outbox quarantine retry`, edit, skip or release, and start again: "+
		"the next start carries the commands out first; or raise errors.quarantine_limit",
		"the quarantine is full: errors.quarantine_limit is %d, and event %s of %s is to be parked, too: %w", set.Limit(), ev.Name(), ev.Table, bad)
}

// unparkable is the error of an event that the topic of the quarantine does not take.
func (d *Delivery) unparkable(ev *transform.Event, err error) error {
	topic := d.opts.Quarantine.Set().Topic()
	return failure.Configf(fmt.Sprintf("raise %s of topic %s, or write smaller events", sink.MaxMessageBytes, topic),
		"event %s of %s cannot be parked: topic %q does not take it: %w", ev.Name(), ev.Table, topic, err)
}
