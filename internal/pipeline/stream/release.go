package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/quarantine"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// commands carries out all commands of operators.
func (d *deliverer) commands(ctx context.Context) error {
	defer d.current.Store(nil)
	for c := d.warden.next(); c != nil; c = d.warden.next() {
		d.current.Store(&flight{began: time.Now()})
		if err := d.command(ctx, c); err != nil {
			return err
		}
	}
	d.current.Store(&flight{began: time.Now()})
	return d.keep(ctx, nil)
}

// readPatience bounds the reads for a command.
const readPatience = 30 * time.Second

// command carries out a command, and answers. An error ends the pipeline: it is of a write.
func (d *deliverer) command(ctx context.Context, c *quarantine.Command) error {
	if err := d.upTo(ctx); err != nil {
		return err
	}
	round := d.warden.Parks.Set().Begin(c)
	written, err := d.walk(ctx, round)
	if written != nil {
		return written
	}
	if err != nil {
		d.log.Warn("what is parked cannot be read for a command", zap.String("command", c.ID), zap.Error(err))
		for _, number := range c.Numbers {
			round.Answer.Refuse(number, "what is parked could not be read, or not all of it: "+err.Error(), "repeat the command")
		}
	}
	d.log.Info("carried out a command about the quarantine", zap.String("verb", string(c.Verb)), zap.String("command", c.ID),
		zap.Int64("published", round.Answer.Published), zap.Int64("dropped", round.Answer.Dropped), zap.Int("refusals", len(round.Answer.Refusals)))
	if c.ID == "" { // of no operator
		return nil
	}
	answer := *c
	round.Answer.At = time.Now().UTC()
	answer.Answer = &round.Answer
	ev, err := answer.Record(d.warden.Log.Topic())
	if err != nil {
		return err
	}
	return d.keep(ctx, []*transform.Event{ev})
}

// upTo saves a checkpoint behind the parked events, as far as their transactions are dealt with,
// and settled events do not come again after a crash. With exactly once, parked events share
// the transaction of their checkpoint. A transient failure costs a repetition at worst.
func (d *deliverer) upTo(ctx context.Context) error {
	if d.transactions != nil {
		return nil
	}
	err := d.checkpointer.advance(ctx)
	switch {
	case errors.Is(err, store.ErrSuperseded):
		return fmt.Errorf("%w: %w", ErrTakenOver, err)
	case err != nil && failure.ClassOf(err) != failure.Transient:
		return err
	}
	return nil
}

// walk takes the parked events through the round. written is the error of a write.
func (d *deliverer) walk(ctx context.Context, round *quarantine.Round) (written, err error) {
	if round.Over() {
		return nil, nil
	}
	reading, cancel := context.WithTimeoutCause(ctx, readPatience, fmt.Errorf("no answer within %s", readPatience))
	defer cancel()
	group := &quarantine.Group{Round: round}
	retry := backoff.Series{Range: backoff.Range{First: 100 * time.Millisecond, Longest: 2 * time.Second}}
	for { // what is settled is passed over
		_, _, err = d.warden.Log.Walk(reading, func(rec *kgo.Record) (bool, error) {
			if e, ok := quarantine.ReadEntry(rec); ok && round.Wants(e.Number) {
				group.Add(e)
			}
			if group.Full() {
				written = d.release(ctx, group)
				group = &quarantine.Group{Round: round}
			}
			return written == nil && !round.Over(), nil
		})
		if written != nil {
			return written, nil
		}
		if err == nil {
			if written = d.release(ctx, group); written == nil {
				round.Missed()
			}
			return written, nil
		}
		group = &quarantine.Group{Round: round}
		if failure.ClassOf(err) != failure.Transient || retry.Pause(reading) != nil {
			return nil, err
		}
	}
}

// release publishes the events of the group, and settles what is published or dropped.
func (d *deliverer) release(ctx context.Context, g *quarantine.Group) error {
	if len(g.Entries) == 0 {
		return nil
	}
	if d.transactions != nil {
		return d.releaseOnce(ctx, g)
	}
	of := make(map[*transform.Event]*quarantine.Entry)
	var events []*transform.Event
	for i, ev := range g.Events {
		if ev != nil {
			events = append(events, ev)
			of[ev] = g.Entries[i]
		}
	}
	parks := d.warden.Parks
	defer parks.Free()
	left := make(map[*quarantine.Entry]bool)
	if len(events) > 0 {
		err := d.sink.Deliver(ctx, events, func(_ context.Context, ev *transform.Event, bad *transform.BadEvent) error {
			left[of[ev]] = true
			if !errors.Is(bad.Err, sink.ErrHeld) {
				g.Round.Refused(of[ev], bad)
				parks.Hold(of[ev].Unit())
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("deliver: %w", err)
		}
	}
	var ends []*transform.Event
	for _, e := range g.Entries {
		if !left[e] {
			ends = append(ends, parks.Set().End(e.Number))
		}
	}
	if err := d.keep(ctx, ends); err != nil {
		return err
	}
	d.released(g, left)
	return nil
}

// releaseOnce is release in transactions. The end of an event comes one transaction behind the
// event, whose own transaction has a checkpoint with the event as settled: brokers may commit a
// transaction in a part of its partitions, and an end without its event would lose the event.
func (d *deliverer) releaseOnce(ctx context.Context, g *quarantine.Group) error {
	for len(g.Entries) > 0 {
		var entries []sink.Entry
		var of []int
		for i, ev := range g.Events {
			if ev != nil {
				entries, of = append(entries, sink.Entry{Event: ev}), append(of, i)
			}
		}
		settles := make([]uint64, len(g.Entries))
		for i, e := range g.Entries {
			settles[i] = e.Number
		}
		refused, err := d.apart(ctx, entries, settles)
		if err != nil {
			return err
		}
		if len(refused) == 0 {
			d.released(g, nil)
			return nil
		}
		bad := make(map[int]*transform.BadEvent)
		for _, r := range refused {
			bad[of[r.Index]] = r.Bad
		}
		g.Refused(bad)
	}
	return nil
}

// released counts settled events, but for the entries left.
func (d *deliverer) released(g *quarantine.Group, left map[*quarantine.Entry]bool) {
	var events []*transform.Event
	for i, e := range g.Entries {
		if left[e] {
			continue
		}
		if g.Round.Settled(e, g.Steps[i]); g.Events[i] != nil {
			events = append(events, g.Events[i])
		}
	}
	d.delivery.Released(events)
}

// keep writes records of the quarantine alone, and the ends due.
func (d *deliverer) keep(ctx context.Context, records []*transform.Event) error {
	if len(records)+len(d.warden.unended) == 0 {
		return nil
	}
	if d.transactions == nil {
		records = append(records, d.ends()...)
		err := d.sink.Deliver(ctx, records, func(_ context.Context, _ *transform.Event, bad *transform.BadEvent) error { return d.refused(bad) })
		if err != nil {
			return fmt.Errorf("deliver: %w", err)
		}
		d.warden.unended = nil
		d.checkpointer.ended()
		return nil
	}
	entries := make([]sink.Entry, len(records))
	for i, ev := range records {
		entries[i].Event = ev
	}
	refused, err := d.apart(ctx, entries, nil)
	if err == nil && len(refused) > 0 {
		err = d.refused(refused[0].Bad)
	}
	return err
}

// ends are those of the events settled by the last checkpoint.
func (d *deliverer) ends() (ends []*transform.Event) {
	for _, number := range d.warden.unended {
		ends = append(ends, d.warden.Parks.Set().End(number))
	}
	return ends
}

// refused is the error of a topic that does not take what the quarantine must keep.
func (d *deliverer) refused(bad *transform.BadEvent) error {
	return failure.Configf(fmt.Sprintf("check what topic %s accepts (policies, schema validation)", d.warden.Log.Topic()),
		"topic %q does not take the records of the quarantine: %w", d.warden.Log.Topic(), bad)
}

// apart writes a transaction without events of the stream, with the ends due. Its checkpoint is
// the last again, for the next claim to find out whether all of the transaction is there, and
// has the events settled by the entries.
func (d *deliverer) apart(ctx context.Context, entries []sink.Entry, settles []uint64) (refused []sink.Refusal, err error) {
	k, own := d.checkpointer, len(entries)
	for _, ev := range d.ends() {
		entries = append(entries, sink.Entry{Event: ev})
	}
	if err := d.transactions.Sink.Await(ctx, entries, func() error { return k.advance(ctx) }); err != nil {
		return nil, anew(err)
	}
	left := func(number uint64) bool {
		return d.warden.Parks.Set().Parked(number) && !slices.Contains(settles, number)
	}
	err = k.exclusive(ctx, func() error {
		began, last := time.Now(), k.last()
		cp := k.next(last.LSN, last.Landmark, last.Cut, nil).Resolved(left)
		cp.Settled = settles
		mark, err := d.transactions.Marker.Mark(cp)
		if err != nil {
			return err
		}
		if refused, err = d.transactions.Sink.Transact(ctx, entries, mark); err != nil {
			return err
		}
		for _, r := range refused {
			if r.Index >= own {
				return d.refused(r.Bad)
			}
		}
		if len(refused) > 0 {
			return nil
		}
		k.committed(cp, began)
		d.warden.unended = settles
		return nil
	})
	return refused, anew(err)
}
