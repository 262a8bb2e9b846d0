package quarantine

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// EventMemory is about the memory of a parked event in a Set, in bytes.
const EventMemory = 256

// Set is what is parked: units, and the numbers of their events. A single goroutine uses a
// Set; Events and Units may be called by any.
type Set struct {
	topic string
	limit int
	rules string            // noted with each event
	units map[Unit][]member // in the order of their numbers
	live  map[uint64]Unit
	known map[identity]uint64
	last  uint64 // number given

	events, keys atomic.Int64
}

// member is a parked event of a unit.
type member struct {
	number   uint64
	bad      bool
	whole    bool
	identity identity

	position  pg.Position
	committed int64 // Unix time in nanoseconds; 0: the positions of others are not comparable
}

// memberOf is the entry's.
func memberOf(e *Entry) member {
	m := member{number: e.Number, bad: e.Reason != "", whole: e.Whole, identity: e.identity, position: pg.Position{CommitLSN: e.LSN, Seq: e.Seq}}
	if e.Committed != nil && e.XID != 0 {
		m.committed = e.Committed.UnixNano()
	}
	return m
}

// follows reports whether the event is certainly before the member in the stream. Positions of
// snapshots change between two reads, and positions of another server may be lower, but with
// later times.
func (m *member) follows(ev *transform.Event) bool {
	return m.committed != 0 && ev.XID != 0 && ev.Position.Compare(m.position) < 0 && ev.CommitTime.UnixNano() <= m.committed
}

// NewSet returns an empty set. limit is the most events parked.
func NewSet(topic string, limit int) *Set {
	return &Set{topic: topic, limit: limit, units: make(map[Unit][]member), live: make(map[uint64]Unit), known: make(map[identity]uint64)}
}

// Events and Units are how many are parked.
func (s *Set) Events() int64 { return s.events.Load() }

// Units is the number of units parked.
func (s *Set) Units() int64 { return s.keys.Load() }

// Limit is the most events parked.
func (s *Set) Limit() int { return s.limit }

// Topic is the topic of the quarantine.
func (s *Set) Topic() string { return s.topic }

// add parks an entry, the last by its number.
func (s *Set) add(e *Entry) {
	if _, twice := s.live[e.Number]; twice {
		return
	}
	of := s.units[e.unit]
	s.units[e.unit] = append(of, memberOf(e))
	s.live[e.Number] = e.unit
	s.known[e.identity] = e.Number
	s.last = max(s.last, e.Number)
	s.count()
}

// Parked reports whether the event is parked.
func (s *Set) Parked(number uint64) bool {
	_, parked := s.live[number]
	return parked
}

// Settle forgets events parked no more, and returns those found in the set.
func (s *Set) Settle(numbers []uint64) (were []uint64) {
	for _, number := range numbers {
		if s.Parked(number) {
			were = append(were, number)
			s.settle(number)
		}
	}
	return were
}

// settle forgets an event, if it is parked.
func (s *Set) settle(number uint64) {
	unit, ok := s.live[number]
	if !ok {
		return
	}
	of, i := s.units[unit], s.index(unit, number)
	if s.known[of[i].identity] == number {
		delete(s.known, of[i].identity)
	}
	delete(s.live, number)
	switch {
	case len(of) == 1:
		delete(s.units, unit)
	case i == 0: // always, but for an event without a record in the topic
		s.units[unit] = of[1:]
	default:
		s.units[unit] = slices.Delete(of, i, i+1)
	}
	s.count()
}

// index is the place of an event among those of the unit.
func (s *Set) index(unit Unit, number uint64) int {
	return slices.IndexFunc(s.units[unit], func(m member) bool { return m.number == number })
}

// End is the record to settle a parked event in the topic.
func (s *Set) End(number uint64) *transform.Event { return settled(s.topic, number) }

func (s *Set) count() {
	s.events.Store(int64(len(s.live)))
	s.keys.Store(int64(len(s.units)))
}

// Attempt is what a delivery parks, until it is known to be durable.
type Attempt struct {
	set     *Set
	now     time.Time
	entries []*Entry
	units   map[Unit]bool
	known   map[identity]bool
	last    uint64
}

// Try begins an attempt. Numbers follow the clock, in milliseconds, so that none comes twice.
func (s *Set) Try(now time.Time) *Attempt {
	return &Attempt{set: s, now: now, last: max(s.last, uint64(max(0, now.UnixMilli())))}
}

// Idle tells that nothing is parked: every good event flows.
func (a *Attempt) Idle() bool { return len(a.set.units) == 0 && len(a.entries) == 0 }

// Holds tells whether an event of the event's unit, before it in the stream, is parked. After a
// crash, events come again with at least once: an event from before all parked ones of the unit,
// once parked, would come after them.
func (a *Attempt) Holds(ev *transform.Event) bool {
	if a.Idle() {
		return false
	}
	unit, alone := UnitOf(ev)
	if alone {
		return false
	}
	if a.units[unit] {
		return true
	}
	return slices.ContainsFunc(a.set.units[unit], func(m member) bool { return !m.follows(ev) })
}

// Fate is what became of an event to be parked.
type Fate int8

// The fates.
const (
	// Parked: the event is, by the attempt.
	Parked Fate = iota
	// Known: the event was parked before.
	Known
	// Full: there is no room.
	Full
)

// Park parks the event, and returns the event for the topic of the quarantine. bad is nil for
// a good event behind another; whole tells that the record could be made.
func (a *Attempt) Park(ev *transform.Event, bad *transform.BadEvent, whole bool) (*transform.Event, Fate, error) {
	e := newEntry(a.last+1, ev, bad, whole, a.now, a.set.rules)
	if _, before := a.set.known[e.identity]; before || a.known[e.identity] {
		return nil, Known, nil
	}
	if len(a.set.live)+len(a.entries) >= a.set.limit {
		return nil, Full, nil
	}
	rec, err := e.record(a.set.topic)
	if err != nil {
		return nil, Parked, err
	}
	if a.units == nil {
		a.units, a.known = make(map[Unit]bool), make(map[identity]bool)
	}
	a.last++
	a.entries = append(a.entries, e)
	a.units[e.unit], a.known[e.identity] = true, true
	return rec, Parked, nil
}

// Mark and Back take back what was parked since; nothing more may be parked then.
func (a *Attempt) Mark() int { return len(a.entries) }

// Back is described beside Mark.
func (a *Attempt) Back(mark int) { a.entries = a.entries[:mark] }

// Done adds what was parked to the set: it is durable.
func (a *Attempt) Done() {
	for _, e := range a.entries {
		e.Value, e.Headers, e.Key, e.ID = nil, nil, nil, nil // the row's memory is given back
		a.set.add(e)
	}
	a.entries = nil
}
