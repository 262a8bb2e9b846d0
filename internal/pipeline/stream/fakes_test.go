package stream

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lease"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/retention"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// counts is a Metrics with a memory.
type counts struct {
	mu         sync.Mutex
	published  int
	dead       []transform.Reason
	skipped    []transform.Reason
	warned     []transform.Warning
	ignored    []string
	reconnects int

	transactions int
	split        int
	snapshots    []bool
	rows         int

	roles    []string
	saves    int
	failures int
	passes   int          // of retention
	unknown  int          // how often the slot became unknown
	inFlight func() int64 // bytes
	age      func() time.Duration
}

func (c *counts) locked(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn()
}

func (c *counts) Published(events []*transform.Event) {
	c.locked(func() { c.published += len(events) })
}
func (c *counts) DeadLettered(r transform.Reason) { c.locked(func() { c.dead = append(c.dead, r) }) }
func (c *counts) Skipped(r transform.Reason)      { c.locked(func() { c.skipped = append(c.skipped, r) }) }
func (c *counts) Warned(w transform.Warning)      { c.locked(func() { c.warned = append(c.warned, w) }) }
func (c *counts) Ignored(op string)               { c.locked(func() { c.ignored = append(c.ignored, op) }) }
func (c *counts) Reconnected(string)              { c.locked(func() { c.reconnects++ }) }
func (*counts) Phase(_, _ string)                 {}
func (c *counts) Role(role string)                { c.locked(func() { c.roles = append(c.roles, role) }) }
func (c *counts) TopicsMissing(int)               {}
func (c *counts) TopicsUnusable(int)              {}
func (c *counts) CredentialsUnusable(int)         {}
func (c *counts) Connected(string, bool)          {}
func (c *counts) Transaction()                    { c.locked(func() { c.transactions++ }) }
func (c *counts) Split()                          { c.locked(func() { c.split++ }) }
func (c *counts) Snapshot(running bool) {
	c.locked(func() { c.snapshots = append(c.snapshots, running) })
}
func (c *counts) SnapshotRow()   { c.locked(func() { c.rows++ }) }
func (c *counts) Capacity(int64) {}
func (c *counts) Slot(catalog.Slot, pg.LSN, time.Duration) {
}
func (c *counts) Failover([]catalog.Candidate) {}
func (c *counts) SlotUnknown()                 { c.locked(func() { c.unknown++ }) }
func (c *counts) CheckpointSaved(err error) {
	c.locked(func() {
		c.saves++
		if err != nil {
			c.failures++
		}
	})
}
func (c *counts) Observe(_, _ func() pg.LSN, _, bytes func() int64) { c.inFlight = bytes }
func (c *counts) ObserveGap(func() time.Duration)                   {}
func (c *counts) ObserveRepair(func() (records, events int64))      {}
func (c *counts) ObserveSnapshot(func() (published, rows int64))    {}
func (c *counts) ObserveCheckpoint(age func() time.Duration)        { c.age = age }

func (c *counts) ObserveUnconfirmed(func() time.Duration) {}
func (c *counts) ObserveStandstill(func() int)            {}
func (c *counts) ObserveInvisible(func() time.Duration)   {}

// forgotten is how often the slot has become unknown.
func (c *counts) forgotten() (n int) {
	c.locked(func() { n = c.unknown })
	return n
}

// reconnected is how often a session was tried again.
func (c *counts) reconnected() (n int) {
	c.locked(func() { n = c.reconnects })
	return n
}

// fakeStore is a checkpoint.Store in memory, for several instances. Of two holders the
// higher epoch wins, of two saves of the same holder the further.
type fakeStore struct {
	mu     sync.Mutex
	cp     *checkpoint.Checkpoint
	saved  []checkpoint.Checkpoint
	onSave func(ctx context.Context, cp checkpoint.Checkpoint) error // may fail or block the save
	forget bool                                                      // as with checkpoint.store: none
}

func (s *fakeStore) Load(context.Context) (checkpoint.Checkpoint, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cp == nil {
		return checkpoint.Checkpoint{}, false, nil
	}
	return *s.cp, true, nil
}

func (s *fakeStore) Save(ctx context.Context, cp checkpoint.Checkpoint) error {
	s.mu.Lock()
	hook := s.onSave
	s.mu.Unlock()
	if hook != nil {
		if err := hook(ctx, cp); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forget {
		return nil
	}
	s.saved = append(s.saved, cp)
	if s.cp == nil || cp.Epoch > s.cp.Epoch || cp.Epoch == s.cp.Epoch && cp.LSN >= s.cp.LSN {
		s.cp = &cp
	}
	return nil
}

func (*fakeStore) Close() {}

func (s *fakeStore) hook(fn func(context.Context, checkpoint.Checkpoint) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onSave = fn
}

// blockSaves makes saves wait, as in a broker's outage, until release is closed.
func blockSaves(s *fakeStore, release <-chan struct{}) {
	s.hook(func(ctx context.Context, _ checkpoint.Checkpoint) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// stored is the valid checkpoint.
func (s *fakeStore) stored() checkpoint.Checkpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cp == nil {
		return checkpoint.Checkpoint{}
	}
	return *s.cp
}

func (s *fakeStore) positions() []pg.LSN {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]pg.LSN, len(s.saved))
	for i, cp := range s.saved {
		out[i] = cp.LSN
	}
	return out
}

// record is an event as seen by a consumer.
type record struct {
	id, topic, key, value string
	position              pg.Position
}

func recordOf(ev *transform.Event) record {
	return record{string(ev.ID), ev.Record.Topic, string(ev.Record.Key), string(ev.Record.Value), ev.Position}
}

// topic is written to by several sinks.
type topic struct {
	mu      sync.Mutex
	records []record
}

func (t *topic) write(events []*transform.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ev := range events {
		t.records = append(t.records, recordOf(ev))
	}
}

func (t *topic) all() []record {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.records)
}

// ids are the event ids in the order of the log.
func (t *topic) ids() []string {
	var ids []string
	for _, r := range t.all() {
		ids = append(ids, r.id)
	}
	return ids
}

// door holds up goroutines while shut. The zero door is open.
type door struct {
	lock  sync.Mutex
	shut  chan struct{} // closed to open; nil while open
	found bool          // shut, by somebody
}

func (d *door) hold() {
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.shut == nil {
		d.shut = make(chan struct{})
	}
}

func (d *door) open() {
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.shut != nil {
		close(d.shut)
		d.shut = nil
	}
}

// held is closed when the shut door opens; nil if open now.
func (d *door) held() chan struct{} {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.found = d.found || d.shut != nil
	return d.shut
}

// reached returns once somebody has found the door shut. The end of the test opens the
// door.
func (d *door) reached(t *testing.T) {
	t.Helper()
	t.Cleanup(d.open)
	eventually(t, "somebody at the door", func() bool {
		d.lock.Lock()
		defer d.lock.Unlock()
		return d.found
	})
}

// pass waits until the door is open or ctx ends (with the cause).
func (d *door) pass(ctx context.Context) error {
	if held := d.held(); held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// gate is a sink.Sink into a topic; a shut gate is like a broker without acks.
type gate struct {
	topic   *topic
	refuses func(*transform.Event) *transform.BadEvent // nil: none
	fails   error                                      // of Deliver, once open
	dead    []string                                   // ids of dead letters
	deadErr error
	lease   *lease.Lease // without it, nothing is written

	door
	mu      sync.Mutex
	waiting []*transform.Event
}

var _ sink.Sink = (*gate)(nil)

// waits returns once an event waits for an ack.
func (g *gate) waits(t *testing.T) {
	t.Helper()
	eventually(t, "an event in flight", func() bool { _, waiting := g.unacked(); return waiting })
}

// unacked is the commit position of the first event waiting for an ack.
func (g *gate) unacked() (pg.LSN, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		return 0, false
	}
	return g.waiting[0].Position.CommitLSN, true
}

func (g *gate) Deliver(ctx context.Context, events []*transform.Event, reject sink.Reject) error {
	g.mu.Lock()
	g.waiting = slices.Clone(events) // the slice is the caller's again after a failure
	g.mu.Unlock()
	if err := g.pass(ctx); err != nil {
		return fmt.Errorf("wait for acks: %w", err)
	}
	for !g.lease.Held() {
		if err := backoff.Sleep(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("wait for the lease: %w", err)
		}
	}
	if g.fails != nil {
		return g.fails
	}
	for i, ev := range events {
		if g.refuses != nil {
			if bad := g.refuses(ev); bad != nil {
				if err := reject(ctx, ev, bad); err != nil {
					return err
				}
				continue
			}
		}
		g.topic.write(events[i : i+1])
	}
	g.mu.Lock()
	g.waiting = nil
	g.mu.Unlock()
	return nil
}

func (g *gate) DeadLetter(_ context.Context, ev *transform.Event, _ *transform.BadEvent) error {
	if g.deadErr != nil {
		return g.deadErr
	}
	g.dead = append(g.dead, string(ev.ID))
	return nil
}

func (*gate) Close() {}

func (c *counts) RetentionDeleted(pg.Table, int64)                       {}
func (c *counts) RetentionPartition(pg.Table, retention.PartitionChange) {}
func (c *counts) RetentionPassed(pg.Table, int64, error)                 { c.locked(func() { c.passes++ }) }

func (c *counts) passCount() (n int) {
	c.locked(func() { n = c.passes })
	return n
}
