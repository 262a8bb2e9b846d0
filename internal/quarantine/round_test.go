package quarantine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func TestCommandsWithoutASense(t *testing.T) {
	s := NewSet("q", 10)
	a := s.Try(now)
	parked(t, a, event("k", 1), refused)
	parked(t, a, event("k", 2), nil)
	if _, _, err := a.Park(event("j", 3), refused, false); err != nil {
		t.Fatal(err)
	}
	a.Done()
	k, behind, j := a.last-2, a.last-1, a.last
	for name, c := range map[string]struct {
		verb   Verb
		number uint64
		why    string // "": carried out
	}{
		"unknown":                  {Skip, 5, "it is not parked, or not any more"},
		"behind another":           {Skip, behind, fmt.Sprintf("it waits behind event %d of its key", k)},
		"nothing to publish":       {Retry, j, "the row could not become a record, so there is nothing to publish"},
		"left out":                 {Skip, j, ""},
		"edited":                   {Edit, j, ""},
		"a record to try again":    {Retry, k, ""},
		"a key with all its parts": {Release, k, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.Begin(&Command{Verb: c.verb, Numbers: []uint64{c.number}})
			why := ""
			if len(r.Answer.Refusals) > 0 {
				why = r.Answer.Refusals[0].Why
			}
			if why != c.why || r.Over() != (c.why != "") {
				t.Errorf("why %q, over %t", why, r.Over())
			}
		})
	}
}

func TestAnEditedEvent(t *testing.T) {
	s := NewSet("q", 10)
	a := s.Try(now)
	rec := parked(t, a, event("k", 1), refused)
	parked(t, a, event("j", 2), refused)
	a.Done()
	e, _ := ReadEntry(&rec.Record)
	c := &Command{ID: "x", Verb: Edit, Numbers: []uint64{e.Number}, Value: []byte("new"), Edit: &Edits{Topic: "t", Key: []byte("l"), Value: true, Headers: map[string]string{"id": "9", "b": "2"}}}
	kept := must.Get(c.Record("q"))(t)
	c, ok := ReadCommand(&kept.Record)
	if !ok {
		t.Fatal("no command")
	}
	step, ev := s.Begin(c).Take(e)
	if step != Publish || ev.Record.Topic != "t" || string(ev.Record.Key) != "l" || string(ev.Record.Value) != "new" ||
		fmt.Sprint(ev.Record.Headers) != fmt.Sprint([]kgo.RecordHeader{{Key: "b", Value: []byte("2")}, {Key: "id", Value: []byte("9")}}) {
		t.Errorf("step %d, %+v", step, ev.Record)
	}
	c.Edit = &Edits{Key: []byte("j")} // which is parked
	r := s.Begin(c)
	if step, _ := r.Take(e); step != Pass || len(r.Answer.Refusals) != 1 || !r.Over() {
		t.Errorf("onto a parked key: step %d, %+v", step, r.Answer)
	}
	c.Edit = &Edits{Value: true, Null: true}
	if _, ev := s.Begin(c).Take(e); ev.Record.Value != nil || ev.Record.Topic != "orders" {
		t.Errorf("without a value: %+v", ev.Record)
	}
}

// walked takes all records through a round, in one group.
func walked(r *Round, log ...*transform.Event) *Group {
	g := &Group{Round: r}
	for _, ev := range log {
		if e, ok := ReadEntry(&ev.Record); ok && r.Wants(e.Number) {
			g.Add(e)
		}
	}
	return g
}

// A key whose good event Kafka refused is not halfway: a command about another key leaves it
// alone. Above all, release drops bad events of its own keys only.
func TestACommandIsAboutItsOwnKeys(t *testing.T) {
	s := NewSet("q", 10)
	a := s.Try(now)
	log := []*transform.Event{
		parked(t, a, event("k", 1), nil), parked(t, a, event("k", 2), refused), // halfway: an instance died
		parked(t, a, event("j", 3), refused),
	}
	a.Done()
	number := func(i int) uint64 { n, _ := numberOf(&log[i].Record); return n }
	r := s.Begin(&Command{Verb: Release, Numbers: []uint64{number(2)}})
	if g := walked(r, log...); !slices.Equal(g.Steps, []Step{Publish, Drop}) || g.Entries[0].Number != number(0) || g.Entries[1].Number != number(2) {
		t.Fatalf("steps %v of %d entries", g.Steps, len(g.Entries))
	}
	r = s.Begin(&Command{})
	walked(r, log...).Refused(map[int]*transform.BadEvent{0: refused})
	if s.Halfway() {
		t.Error("a key waits for Kafka, and is halfway")
	}
	r = s.Begin(&Command{Verb: Release, Numbers: []uint64{number(2)}})
	if g := walked(r, log...); len(g.Entries) != 1 || g.Entries[0].Number != number(2) || len(r.Answer.Refusals) != 0 {
		t.Errorf("%d entries, %v", len(g.Entries), r.Answer.Refusals)
	}
	r = s.Begin(&Command{Verb: Release, Numbers: []uint64{number(0)}, Keys: []ReleasedKey{s.released(number(0))}})
	if g := walked(r, log...); !slices.Equal(g.Steps, []Step{Drop, Drop}) {
		t.Errorf("release of an event refused: steps %v", g.Steps)
	}
}

// Kafka refuses an event behind the event of a command: the events before go, otherwise no
// command could ever settle the key.
func TestEventsBeforeARefusedOneGo(t *testing.T) {
	s := NewSet("q", 10)
	a := s.Try(now)
	log := []*transform.Event{
		parked(t, a, event("k", 1), refused), parked(t, a, event("k", 2), nil), parked(t, a, event("k", 3), nil),
		parked(t, a, event("j", 4), refused), parked(t, a, event("j", 5), nil), parked(t, a, event("j", 6), refused),
	}
	a.Done()
	number := func(i int) uint64 { n, _ := numberOf(&log[i].Record); return n }
	r := s.Begin(&Command{Verb: Skip, Numbers: []uint64{number(0), number(3)}})
	g := walked(r, log...)
	g.Refused(map[int]*transform.BadEvent{1: refused, 2: refused})
	var left []uint64
	for _, e := range g.Entries {
		left = append(left, e.Number)
	}
	if want := []uint64{number(0), number(3), number(4)}; !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
	why := fmt.Sprint(r.Answer.Refusals)
	if len(r.Answer.Refusals) != 2 || r.Answer.Refusals[1].Number != number(1) {
		t.Errorf("refusals %s", why)
	}
	for i, e := range g.Entries {
		r.Settled(e, g.Steps[i])
	}
	r.Missed()
	if len(r.Answer.Refusals) != 2 || s.units[g.Entries[0].unit][0].number != number(1) {
		t.Errorf("refusals %v", r.Answer.Refusals)
	}
}

// A parked event without a record is no success.
func TestAnEventWithoutARecordIsRefused(t *testing.T) {
	s := NewSet("q", 10)
	a := s.Try(now)
	parked(t, a, event("k", 1), refused)
	a.Done()
	r := s.Begin(&Command{Verb: Retry, Numbers: []uint64{a.last}})
	if r.Missed(); len(r.Answer.Refusals) != 1 || r.Answer.Refusals[0].Number != a.last || !r.Over() {
		t.Errorf("%+v", r.Answer)
	}
}

// An instance that dies in a release leaves bad events behind the one that was dropped: the
// next instance leaves them out, too, but none that was parked after the command.
func TestAReleaseGoesOnAfterACrash(t *testing.T) {
	s := NewSet("q", 10)
	a := s.Try(now)
	log := []*transform.Event{
		parked(t, a, event("k", 1), refused), parked(t, a, event("k", 2), nil), parked(t, a, event("k", 3), refused), parked(t, a, event("k", 4), nil),
	}
	a.Done()
	number := func(i int) uint64 { n, _ := numberOf(&log[i].Record); return n }
	c := &Command{Verb: Release, Numbers: []uint64{number(0)}, Keys: []ReleasedKey{s.released(number(0))}}
	kept := must.Get(c.Record("q"))(t)
	c, _ = ReadCommand(&kept.Record)
	a = s.Try(now)
	log = append(log, parked(t, a, event("k", 5), refused), parked(t, a, event("k", 6), nil))
	a.Done()
	s.Settle([]uint64{number(0), number(1)}) // then the instance died
	r := s.Begin(c)
	if g := walked(r, log...); !slices.Equal(g.Steps, []Step{Drop, Publish}) || len(r.Answer.Refusals) != 1 || r.Answer.Refusals[0].Number != number(4) {
		t.Errorf("steps %v, refusals %v", g.Steps, r.Answer.Refusals)
	}
	s.Settle([]uint64{number(2), number(3)})
	if r := s.Begin(c); !r.Over() || len(r.Answer.Refusals) != 1 {
		t.Errorf("after its end: %v", r.Answer.Refusals)
	}
	c.Found = true
	if r := s.Begin(c); !r.Over() || len(r.Answer.Refusals) != 0 || r.Answer.Before != 1 {
		t.Errorf("after its end, by another instance: %+v", r.Answer)
	}
}
