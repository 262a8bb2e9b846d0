package quarantine

import (
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Round is a command on its way: the events of its keys are taken in the order of the log.
type Round struct {
	set     *Set
	command *Command
	named   map[uint64]bool
	open    map[Unit]bool   // keys with more to do
	asked   map[Unit]bool   // keys of the command
	last    map[Unit]uint64 // of Release: the last event to be left out, if bad
	Answer  Answer
}

// Halfway tells that a key has lost its bad event, and still has others: an instance died
// while it published them.
func (s *Set) Halfway() bool {
	for _, of := range s.units {
		if !of[0].bad {
			return true
		}
	}
	return false
}

// Begin judges the command's numbers. Numbers without a sense are refused, and the rest is
// done. Keys that are halfway go on, also without a word about them.
func (s *Set) Begin(c *Command) *Round {
	r := &Round{set: s, command: c, named: make(map[uint64]bool), open: make(map[Unit]bool), asked: make(map[Unit]bool), last: make(map[Unit]uint64)}
	for unit, of := range s.units {
		if !of[0].bad {
			r.open[unit] = true
		}
	}
	for i, number := range c.Numbers {
		unit, left := s.leftOf(c, i)
		if c.Found && !left && !s.Parked(number) {
			r.Answer.Before++
			continue
		}
		if why, remedy := s.against(c, number); why != "" && !left {
			r.Answer.Refuse(number, why, remedy)
			continue
		}
		if !left {
			unit = s.live[number]
		}
		r.named[number], r.open[unit], r.asked[unit] = true, true, true
		if c.Verb == Release {
			r.last[unit] = c.key(i).Last
		}
	}
	return r
}

// leftOf is the key of a Release left unfinished by an instance: the event is settled, and
// others of the time of the command are not.
func (s *Set) leftOf(c *Command, i int) (unit Unit, left bool) {
	key := c.key(i)
	if c.Verb != Release || s.Parked(c.Numbers[i]) || len(key.Unit) != len(unit) {
		return unit, false
	}
	unit = Unit(key.Unit)
	of := s.units[unit]
	return unit, len(of) > 0 && of[0].number <= key.Last
}

// against is the reason against a command about the number; "": none.
func (s *Set) against(c *Command, number uint64) (why, remedy string) {
	unit, parked := s.live[number]
	if !parked {
		return "it is not parked, or not any more", "take the numbers from `cdc-outbox quarantine list`"
	}
	first := s.units[unit][0]
	switch {
	case first.number != number:
		return fmt.Sprintf("it waits behind event %d of its key", first.number), fmt.Sprintf("settle %d first", first.number)
	case c.Verb == Retry && !first.whole:
		return "the row could not become a record, so there is nothing to publish", "give what is wrong or missing with `cdc-outbox quarantine edit`, or leave the event out with skip"
	}
	return "", ""
}

// Over tells that nothing is left to do.
func (r *Round) Over() bool { return len(r.open) == 0 }

// Wants tells whether the round may have to do with the event of this number.
func (r *Round) Wants(number uint64) bool {
	unit, parked := r.set.live[number]
	return parked && r.open[unit]
}

// Step is what to do with an event.
type Step int8

// The steps.
const (
	Pass    Step = iota // nothing
	Publish             // and settle
	Drop                // settle
)

// Take decides about an event, the next of its key. Publish comes with the event to publish.
// A bad event that the command does not name ends the round for its key.
func (r *Round) Take(e *Entry) (Step, *transform.Event) {
	if !r.Wants(e.Number) {
		return Pass, nil
	}
	named := r.named[e.Number]
	switch {
	case named && r.command.Verb == Skip, e.Number <= r.last[e.unit] && (e.Reason != "" || r.set.refused(e)):
		return Drop, nil
	case named && r.command.Verb == Edit:
		ev := e.Event()
		r.command.apply(ev)
		if unit, alone := UnitOf(ev); !alone && unit != e.unit && len(r.set.units[unit]) > 0 {
			r.Answer.Refuse(e.Number, "its new topic and key are parked, and it would come before their events", "settle those first")
			delete(r.open, e.unit)
			return Pass, nil
		}
		return Publish, ev
	case named && r.command.Verb == Retry, e.Reason == "":
		return Publish, e.Event()
	}
	r.Answer.Refuse(e.Number, fmt.Sprintf("it is bad, too (%s): %s", e.Reason, e.Error), "the key waits for another command, about this event")
	delete(r.open, e.unit)
	return Pass, nil
}

// Refused ends the round for the event's key: Kafka, the schema registry or the claim store does
// not take the event.
func (r *Round) Refused(e *Entry, bad *transform.BadEvent) {
	who := "Kafka does not take it: "
	switch bad.Reason {
	case transform.ReasonUnknownSchema, transform.ReasonSchemaMismatch, transform.ReasonInvalidJSON, transform.ReasonInvalidUTF8, transform.ReasonClaimGone:
		who = "it cannot be published: "
	}
	r.Answer.Refuse(e.Number, who+bad.Error(), failure.RemedyOf(bad.Err))
	delete(r.open, e.unit)
	if i := r.set.index(e.unit, e.Number); i >= 0 {
		r.set.units[e.unit][i].bad = true // waits for a command, like other bad events
	}
}

// refused reports whether the event is bad, by the log or by Kafka's answer to a command.
func (s *Set) refused(e *Entry) bool {
	i := s.index(e.unit, e.Number)
	return i >= 0 && s.units[e.unit][i].bad
}

// Missed ends the round after the last record of the topic. Keys of the command with more to do
// have events without a record.
func (r *Round) Missed() {
	for unit := range r.open {
		if r.asked[unit] {
			r.Answer.Refuse(r.set.units[unit][0].number, "its record is not in the topic any more", "restart the instance, which forgets the event; `cdc-outbox repair` publishes it from its row")
		}
	}
	clear(r.open)
}

// Settled notes a step that is durable. The key flows once its last event is settled.
func (r *Round) Settled(e *Entry, step Step) {
	r.set.settle(e.Number)
	if step == Publish {
		r.Answer.Published++
	} else {
		r.Answer.Dropped++
	}
	if len(r.set.units[e.unit]) == 0 {
		delete(r.open, e.unit)
	}
}

// Group takes entries while they fit: see Round.Take.
type Group struct {
	Round   *Round
	Entries []*Entry
	Steps   []Step
	Events  []*transform.Event // nil for Drop
	bytes   int64
}

// GroupBytes and groupEvents bound a group.
const (
	GroupBytes  = 4 << 20
	groupEvents = 1000
)

// Add takes the entry, unless the round passes it over.
func (g *Group) Add(e *Entry) {
	step, ev := g.Round.Take(e)
	if step == Pass {
		return
	}
	g.Entries, g.Steps, g.Events = append(g.Entries, e), append(g.Steps, step), append(g.Events, ev)
	if ev != nil {
		g.bytes += ev.Size() + transform.StoredSize(&ev.Record) // the encoding reads the value
	}
}

// Full tells that the group should be written.
func (g *Group) Full() bool { return g.bytes >= GroupBytes || len(g.Entries) >= groupEvents }

// Refused ends the round for the keys of events refused by Kafka, by their places in the
// group. Events of a key before a refused event stay in the group.
func (g *Group) Refused(bad map[int]*transform.BadEvent) {
	kept := &Group{Round: g.Round}
	closed := make(map[Unit]bool)
	for i, e := range g.Entries {
		switch {
		case closed[e.unit]:
		case bad[i] != nil:
			closed[e.unit] = true
			g.Round.Refused(e, bad[i])
		default:
			kept.Entries, kept.Steps, kept.Events = append(kept.Entries, e), append(kept.Steps, g.Steps[i]), append(kept.Events, g.Events[i])
		}
	}
	*g = *kept
}
