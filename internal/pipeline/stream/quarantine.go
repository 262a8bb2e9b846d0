package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
	"github.com/cdc-outbox/cdc-outbox/internal/quarantine"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Quarantine is where bad events are parked, for OnBadEvent quarantine. The pipeline does not
// close Log.
type Quarantine struct {
	Log *quarantine.Log
	// Parks is shared with the sink.
	Parks *delivery.Quarantine
	// Limit is the most events parked.
	Limit int
}

// warden loads the parked events, and has the commands of operators carried out by the
// deliverer. follow is its goroutine.
type warden struct {
	*Quarantine
	queue  *queue
	log    *zap.Logger
	outage *digest.Outage

	loaded chan struct{} // closed once from is set
	from   int64         // to follow from; before loaded, of the source

	mu      sync.Mutex
	pending []*quarantine.Command
	taken   map[string]bool // ids of commands once pending: a topic may be read again
}

func newWarden(q *Quarantine, queue *queue, log *zap.Logger) *warden {
	if q == nil {
		return nil
	}
	return &warden{
		Quarantine: q, queue: queue, log: log, loaded: make(chan struct{}),
		outage: digest.NewOutage(log, "commands to the quarantine are read again"), taken: make(map[string]bool),
	}
}

// load finds the parked events. This instance alone writes to Kafka by now, and has delivered
// nothing. Later sessions of the pipeline find everything known.
func (w *warden) load(ctx context.Context) error {
	if w == nil || w.Parks.Set() != nil {
		return nil
	}
	set, pending, from, err := w.Log.Load(ctx, w.Limit)
	if err != nil {
		return err
	}
	if set.Events() > 0 {
		w.log.Warn("events are parked in the quarantine", zap.Int64("events", set.Events()), zap.Int64("keys", set.Units()),
			zap.String("remedy", "see `cdc-outbox quarantine list`"))
	}
	if set.Halfway() { // goes on with what an instance left
		pending = slices.Insert(pending, 0, &quarantine.Command{})
	}
	w.Parks.Use(set)
	w.pending, w.from = pending, from
	for _, c := range pending {
		w.taken[c.ID] = true
	}
	return nil
}

// begin has pending commands carried out before the first event.
func (w *warden) begin() {
	if w == nil {
		return
	}
	select {
	case <-w.loaded:
	default:
		close(w.loaded)
		w.mu.Lock()
		asked := len(w.pending) > 0
		w.mu.Unlock()
		if asked {
			w.queue.interrupt()
		}
	}
}

// follow takes commands until ctx ends.
func (w *warden) follow(ctx context.Context) error {
	select {
	case <-w.loaded:
	case <-ctx.Done():
		return nil
	}
	w.Log.Follow(ctx, w.from, lookEvery, w.take, func(err error) {
		if err != nil {
			w.outage.Failed("commands to the quarantine cannot be read; will retry", err)
			return
		}
		w.outage.Over()
	})
	return nil
}

// lookEvery is how often commands are looked for.
const lookEvery = time.Second

func (w *warden) take(c *quarantine.Command) {
	if c.Answer != nil {
		return
	}
	w.mu.Lock()
	again := w.taken[c.ID]
	if !again {
		w.taken[c.ID], w.pending = true, append(w.pending, c)
	}
	w.mu.Unlock()
	if !again {
		w.queue.interrupt()
	}
}

// quarantined counts what is parked; nil: nothing is.
func (d *deliverer) quarantined() *QuarantineStatus {
	if d.warden == nil {
		return nil
	}
	set := d.warden.Parks.Set()
	if set == nil || set.Events() == 0 {
		return nil
	}
	return &QuarantineStatus{set.Events(), set.Units(), set.Limit()}
}

// next is the next command to be carried out; nil: none.
func (w *warden) next() (c *quarantine.Command) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) > 0 {
		c, w.pending = w.pending[0], w.pending[1:]
	}
	return c
}

// errInterrupted is await's, for commands.
var errInterrupted = errors.New("a command is to be carried out")

// interrupt has await return errInterrupted, before the next batch.
func (q *queue) interrupt() {
	q.mu.Lock()
	q.interrupted = true
	q.mu.Unlock()
	session.Wake(q.arrived)
}

// takeInterrupt reports an interruption, once.
func (q *queue) takeInterrupt() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	was := q.interrupted
	q.interrupted = false
	return was
}

// commands carries out all commands of operators.
func (d *deliverer) commands(ctx context.Context) error {
	for c := d.warden.next(); c != nil; c = d.warden.next() {
		d.current.Store(&flight{began: time.Now()})
		if err := d.command(ctx, c); err != nil {
			return err
		}
		d.current.Store(nil)
	}
	return nil
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
			ends = append(ends, d.warden.Parks.Set().End(e))
		}
	}
	if err := d.keep(ctx, ends); err != nil {
		return err
	}
	d.released(g, left)
	return nil
}

// releaseOnce is release in transactions.
func (d *deliverer) releaseOnce(ctx context.Context, g *quarantine.Group) error {
	for len(g.Entries) > 0 {
		var entries []sink.Entry
		var of []int
		for i, ev := range g.Events {
			if ev != nil {
				entries, of = append(entries, sink.Entry{Event: ev}), append(of, i)
			}
		}
		for _, e := range g.Entries {
			entries = append(entries, sink.Entry{Event: d.warden.Parks.Set().End(e)})
		}
		refused, err := d.apart(ctx, entries)
		if err != nil {
			return err
		}
		if len(refused) == 0 {
			d.released(g, nil)
			return nil
		}
		bad := make(map[int]*transform.BadEvent)
		for _, r := range refused {
			if r.Index >= len(of) {
				return d.refused(r.Bad)
			}
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

// keep writes records of the quarantine alone.
func (d *deliverer) keep(ctx context.Context, records []*transform.Event) error {
	if len(records) == 0 {
		return nil
	}
	if d.transactions == nil {
		err := d.sink.Deliver(ctx, records, func(_ context.Context, _ *transform.Event, bad *transform.BadEvent) error { return d.refused(bad) })
		if err != nil {
			return fmt.Errorf("deliver: %w", err)
		}
		return nil
	}
	entries := make([]sink.Entry, len(records))
	for i, ev := range records {
		entries[i].Event = ev
	}
	refused, err := d.apart(ctx, entries)
	if err == nil && len(refused) > 0 {
		err = d.refused(refused[0].Bad)
	}
	return err
}

// refused is the error of a topic that does not take what the quarantine must keep.
func (d *deliverer) refused(bad *transform.BadEvent) error {
	return failure.Configf(fmt.Sprintf("check what topic %s accepts (policies, schema validation)", d.warden.Log.Topic()),
		"topic %q does not take the records of the quarantine: %w", d.warden.Log.Topic(), bad)
}

// apart writes a transaction without events of the stream. Its checkpoint is the last one, so
// that the next claim finds out whether all of the transaction is there.
func (d *deliverer) apart(ctx context.Context, entries []sink.Entry) (refused []sink.Refusal, err error) {
	k := d.checkpointer
	if err := d.transactions.Sink.Await(ctx, entries, func() error { return k.advance(ctx) }); err != nil {
		return nil, anew(err)
	}
	err = k.exclusive(ctx, func() error {
		began, last := time.Now(), k.last()
		cp := k.next(last.LSN, last.Landmark, last.Cut)
		mark, err := d.transactions.Marker.Mark(cp)
		if err != nil {
			return err
		}
		if refused, err = d.transactions.Sink.Transact(ctx, entries, mark); err != nil || len(refused) > 0 {
			return err
		}
		k.committed(cp, began)
		return nil
	})
	return refused, anew(err)
}
