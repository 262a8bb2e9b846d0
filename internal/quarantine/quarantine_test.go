package quarantine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

var now = time.UnixMilli(1_000)

func event(key string, seq int) *transform.Event {
	ev := &transform.Event{
		Table: "public.outbox", ID: fmt.Append(nil, seq), Position: pg.Position{CommitLSN: pg.LSN(seq), Seq: 0},
		Record: kgo.Record{Topic: "orders", Partition: transform.PartitionByKey, Value: fmt.Append(nil, "v", seq), Headers: []kgo.RecordHeader{{Key: "id", Value: fmt.Append(nil, seq)}}},
	}
	if key != "" {
		ev.Record.Key = []byte(key)
	}
	return ev
}

var refused = &transform.BadEvent{Reason: transform.ReasonRejectedByBroker, Err: errors.New("no")}

// While a key is parked, each good event is looked up: this must leave no garbage.
func TestHoldsAllocatesNothing(t *testing.T) {
	set := NewSet("quarantine", 10)
	attempt := set.Try(now)
	if _, _, err := attempt.Park(event("bad", 1), refused, true); err != nil {
		t.Fatal(err)
	}
	attempt.Done()
	good := event("good", 2)
	if n := testing.AllocsPerRun(100, func() { attempt.Holds(good) }); n > 0 {
		t.Errorf("%v allocations for a good event, want none", n)
	}
}

// The collector's limit counts on it: see boundMemory.
func TestMemoryOfAParkedEvent(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const n = 10_000
	before, set := heap(), NewSet("quarantine", n)
	for i := range n {
		attempt := set.Try(now)
		parked(t, attempt, event(fmt.Sprint("key ", i), i), refused)
		attempt.Done()
	}
	if each := (heap() - before) / n; each > EventMemory {
		t.Errorf("%d bytes for each parked event, want %d at most", each, EventMemory)
	}
	runtime.KeepAlive(set)
}

// world is a connector with a log, and a consumer. Everything that is durable is in log and
// seen; set is the instance's memory.
type world struct {
	t    *testing.T
	rnd  *rand.Rand
	set  *Set
	log  []*kgo.Record
	seen []string // published: key/seq
	bad  map[int]bool
	keys map[int]string
	// dropped are left out by commands.
	dropped map[int]bool
	// read is the next event that the instance reads: behind what it has confirmed.
	read int
}

func (w *world) write(events ...*transform.Event) {
	for _, ev := range events {
		w.log = append(w.log, &ev.Record)
	}
}

// restart forgets the memory, as another instance that takes over has none.
func (w *world) restart() []*Command {
	f := newFold(None)
	for _, rec := range w.log {
		f.add(rec)
	}
	set, pending := f.contents().set("q", 1000, "")
	w.set = set
	return pending
}

// deliver takes a batch: what is parked and what is published is durable together, or not at
// all.
func (w *world) deliver(n int, lost bool) {
	a := w.set.Try(now)
	var records []*transform.Event
	var seen []string
	for seq := w.read; seq < w.read+n; seq++ {
		ev := event(w.keys[seq], seq)
		var bad *transform.BadEvent
		if w.bad[seq] {
			bad = refused
		}
		if bad == nil && !a.Holds(ev) {
			seen = append(seen, fmt.Sprint(w.keys[seq], "/", seq))
			continue
		}
		rec, fate, err := a.Park(ev, bad, true)
		must.OK(w.t, err)
		if fate != Parked {
			w.t.Fatalf("event %d: fate %d", seq, fate)
		}
		records = append(records, rec)
	}
	if lost {
		return
	}
	w.write(records...)
	w.seen = append(w.seen, seen...)
	w.read += n
	a.Done()
}

// carryOut takes a command through the log, in groups, and may die between two groups.
func (w *world) carryOut(c *Command, dies bool) (died bool) {
	r := w.set.Begin(c)
	for _, rec := range slices.Clone(w.log) {
		if r.Over() {
			break
		}
		e, ok := ReadEntry(rec)
		if !ok || !r.Wants(e.Number) {
			continue
		}
		g := &Group{Round: r}
		g.Add(e)
		for i, e := range g.Entries {
			ev := g.Events[i]
			switch {
			case ev == nil && (c.Verb != Skip && c.Verb != Release || !w.bad[int(e.LSN)] || c.Verb == Skip && e.Number != c.Numbers[0]):
				w.t.Fatalf("%s %v drops %d", c.Verb, c.Numbers, e.Number)
			case ev == nil:
				w.dropped[int(e.LSN)] = true
			default:
				w.seen = append(w.seen, fmt.Sprint(string(ev.Record.Key), "/", string(ev.ID)))
			}
			w.write(w.set.End(e.Number))
			r.Settled(e, g.Steps[i])
		}
		if dies && w.rnd.IntN(3) == 0 {
			return true
		}
	}
	return false
}

// The order of each key is that of the stream, nothing comes twice, and nothing is left out
// but by a command: whatever is parked, settled and forgotten in which order.
func TestRandomHistories(t *testing.T) {
	histories := 150
	if testing.Short() {
		histories = 20
	}
	for seed := range histories {
		w := &world{t: t, rnd: rand.New(rand.NewPCG(uint64(seed), 1)), bad: map[int]bool{}, keys: map[int]string{}, dropped: map[int]bool{}}
		w.restart()
		for seq := range 400 {
			w.bad[seq] = w.rnd.IntN(10) == 0
			w.keys[seq] = []string{"a", "b", "c", ""}[w.rnd.IntN(4)]
		}
		command := func(verb Verb, number uint64) *Command {
			c := &Command{ID: "c", Verb: verb, Numbers: []uint64{number}}
			if verb == Release {
				c.Keys = []ReleasedKey{w.set.released(number)}
			}
			return c
		}
		for range 60 {
			switch w.rnd.IntN(6) {
			case 0, 1, 2:
				w.deliver(1+w.rnd.IntN(6), w.rnd.IntN(5) == 0)
			case 3:
				w.restart()
			default:
				var firsts []uint64
				for _, of := range w.set.units {
					firsts = append(firsts, of[0].number)
				}
				if len(firsts) == 0 {
					continue
				}
				slices.Sort(firsts)
				verb := []Verb{Retry, Skip, Release}[w.rnd.IntN(3)]
				c := command(verb, firsts[w.rnd.IntN(len(firsts))])
				if !w.carryOut(c, true) {
					continue
				}
				w.restart()
				w.carryOut(&Command{}, false) // goes on with keys that are halfway
				w.carryOut(c, false)
				if verb != Release {
					continue
				}
				if of := w.set.units[Unit(c.Keys[0].Unit)]; len(of) > 0 && of[0].number <= c.Keys[0].Last {
					t.Fatalf("history %d: event %d is left of a release up to %d", seed, of[0].number, c.Keys[0].Last)
				}
			}
		}
		for w.set.Units() > 0 {
			for _, of := range w.set.units {
				w.carryOut(command(Retry, of[0].number), false)
				break
			}
		}
		var want, got = map[string][]string{}, map[string][]string{}
		for seq := range w.read {
			if !w.dropped[seq] {
				key := w.keys[seq]
				want[key] = append(want[key], fmt.Sprint(key, "/", seq))
			}
		}
		for _, s := range w.seen {
			key, _, _ := cutKey(s)
			got[key] = append(got[key], s)
		}
		slices.Sort(want[""]) // no order is promised without a key
		slices.Sort(got[""])
		for key := range want {
			if !slices.Equal(want[key], got[key]) {
				t.Fatalf("history %d, key %q:\nwant %v\ngot  %v", seed, key, want[key], got[key])
			}
		}
	}
}

// released is the key of an event, in a Release of now.
func (s *Set) released(number uint64) ReleasedKey {
	unit := s.live[number]
	of := s.units[unit]
	return ReleasedKey{Unit: unit[:], Last: of[len(of)-1].number}
}

func cutKey(s string) (key, seq string, ok bool) {
	for i := range s {
		if s[i] == '/' {
			return s[:i], s[i+1:], true
		}
	}
	return "", "", false
}

func TestARecordComesBackAsItWas(t *testing.T) {
	for name, change := range map[string]func(*transform.Event){
		"whole":    func(*transform.Event) {},
		"no value": func(ev *transform.Event) { ev.Record.Value = nil },
		"empty":    func(ev *transform.Event) { ev.Record.Value = []byte{} },
		"no key":   func(ev *transform.Event) { ev.Record.Key = nil },
		"no parts": func(ev *transform.Event) { ev.Record = kgo.Record{Partition: 3}; ev.ID = nil },
		"times":    func(ev *transform.Event) { ev.CommitTime, ev.Asked = now.UTC(), now.Add(time.Hour).UTC() },
	} {
		t.Run(name, func(t *testing.T) {
			ev := event("k\xff", 7)
			change(ev)
			a := NewSet("q", 10).Try(now)
			rec := parked(t, a, ev, refused)
			e, ok := ReadEntry(&rec.Record)
			if !ok {
				t.Fatal("no entry")
			}
			back := e.Event()
			if fmt.Sprintf("%#v", back.Record) != fmt.Sprintf("%#v", ev.Record) || back.Position != ev.Position ||
				fmt.Sprintf("%#v", back.ID) != fmt.Sprintf("%#v", ev.ID) || !back.CommitTime.Equal(ev.CommitTime) || !back.Asked.Equal(ev.Asked) {
				t.Errorf("got  %#v\nwant %#v", back, ev)
			}
		})
	}
}

func parked(t *testing.T, a *Attempt, ev *transform.Event, bad *transform.BadEvent) *transform.Event {
	t.Helper()
	rec, fate, err := a.Park(ev, bad, true)
	must.OK(t, err)
	if fate != Parked {
		t.Fatalf("fate %d", fate)
	}
	return rec
}

func TestRecordsOfOthersAreNoEntries(t *testing.T) {
	f := newFold(func(uint64) bool { return true })
	for _, rec := range []*kgo.Record{
		{Key: []byte("event/1"), Value: []byte("v")},
		{Key: []byte("event/1"), Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: header, Value: []byte(`{"number":2}`)}}},
		{Key: []byte("event/x"), Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: header, Value: []byte(`{"number":2}`)}}},
		{Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: header, Value: []byte(`{}`)}}},
		{Key: []byte("command/1"), Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: header, Value: []byte(`nonsense`)}}},
		{},
	} {
		f.add(rec)
	}
	if c := f.contents(); len(c.Entries)+len(c.Commands) != 0 || c.Others != 6 {
		t.Errorf("%+v", c)
	}
}

// An event that comes again after a crash, as its checkpoint was not saved, is parked once.
func TestAnEventThatComesAgainIsKnown(t *testing.T) {
	s := NewSet("q", 10)
	a := s.Try(now)
	parked(t, a, event("k", 1), refused)
	if _, fate, _ := a.Park(event("k", 1), refused, true); fate != Known {
		t.Errorf("within the attempt: fate %d", fate)
	}
	a.Done()
	if _, fate, _ := s.Try(now).Park(event("k", 1), refused, true); fate != Known || s.Events() != 1 {
		t.Errorf("after the attempt: fate %d, %d events", fate, s.Events())
	}
	if _, fate, _ := s.Try(now).Park(event("k", 2), nil, false); fate != Parked {
		t.Errorf("another event: fate %d", fate)
	}
}

func TestTheLimit(t *testing.T) {
	s := NewSet("q", 2)
	a := s.Try(now)
	parked(t, a, event("k", 1), refused)
	parked(t, a, event("k", 2), nil)
	if _, fate, _ := a.Park(event("j", 3), refused, true); fate != Full {
		t.Errorf("within the attempt: fate %d", fate)
	}
	a.Done()
	if _, fate, _ := s.Try(now).Park(event("j", 3), refused, true); fate != Full {
		t.Errorf("after the attempt: fate %d", fate)
	}
}

func TestNumbersNeverComeTwice(t *testing.T) {
	s := NewSet("q", 10)
	a := s.Try(now)
	parked(t, a, event("k", 1), refused)
	a.Done()
	first := s.last
	s.settle(first)
	b := NewSet("q", 10).Try(now.Add(5 * time.Millisecond)) // a successor that finds nothing
	parked(t, b, event("k", 2), refused)
	if b.last <= first {
		t.Errorf("%d after %d", b.last, first)
	}
}

// After a crash with at least once, an event from before the parked ones of its key comes again.
// Parked behind them, the event would be the last of the key.
func TestAnEventFromBeforeTheParkedOnesIsNotHeld(t *testing.T) {
	at := func(seq, xid int, committed time.Time) *transform.Event {
		ev := event("k", seq)
		ev.XID, ev.CommitTime = uint32(xid), committed
		return ev
	}
	s := NewSet("q", 10)
	a := s.Try(now)
	parked(t, a, at(5, 9, now), refused)
	parked(t, a, at(6, 9, now), nil)
	a.Done()
	for name, c := range map[string]struct {
		event *transform.Event
		held  bool
	}{
		"before":                   {at(4, 8, now.Add(-time.Second)), false},
		"the parked event":         {at(5, 9, now), true},
		"behind":                   {at(7, 10, now.Add(time.Second)), true},
		"of another server, later": {at(4, 8, now.Add(time.Second)), true},
		"of a snapshot":            {at(4, 0, time.Time{}), true},
	} {
		if held := s.Try(now).Holds(c.event); held != c.held {
			t.Errorf("%s: held %t", name, held)
		}
	}
	again := s.Try(now)
	parked(t, again, at(3, 7, now.Add(-time.Minute)), refused)
	if !again.Holds(at(4, 8, now.Add(-time.Second))) {
		t.Error("an event flows past one that is parked before it")
	}
	again.Done()
	if !s.Try(now).Holds(at(4, 8, now.Add(-time.Second))) {
		t.Error("an event flows past one that was parked before it")
	}
}

// A topic created anew begins at 0 again, and has commands.
func TestFollowBeginsAgainInANewTopic(t *testing.T) {
	cluster := must.Get(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "q")))(t)
	t.Cleanup(cluster.Close)
	log := must.Get(Open([]kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...)}, "q", broker.Tools{}))(t)
	t.Cleanup(log.Close)
	ev := must.Get((&Command{ID: "c", Verb: Retry, Numbers: []uint64{1}}).Record("q"))(t)
	must.OK(t, log.client.ProduceSync(t.Context(), &ev.Record).FirstErr())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var taken []string
	log.Follow(ctx, 100, time.Millisecond, func(c *Command) { taken = append(taken, c.ID); cancel() }, func(error) {})
	if !slices.Equal(taken, []string{"c"}) {
		t.Errorf("took %q", taken)
	}
}

// None keeps no values, so that a list of many large events fits in memory.
func TestOnlyValuesAskedForAreKept(t *testing.T) {
	a := NewSet("q", 10).Try(now)
	one, two := parked(t, a, event("k", 1), refused), parked(t, a, event("k", 2), nil)
	number, _ := numberOf(&two.Record)
	f := newFold(func(n uint64) bool { return n == number })
	f.add(&one.Record)
	f.add(&two.Record)
	if c := f.contents(); c.Entries[0].Value != nil || c.Entries[1].Value == nil {
		t.Errorf("values %q, %q", c.Entries[0].Value, c.Entries[1].Value)
	}
}

// Under other rules, later events of a parked key may have another topic or key.
func TestOtherRulesAreRefused(t *testing.T) {
	f := newFold(None)
	s := NewSet("q", 10)
	s.rules = "one"
	f.add(&parked(t, s.Try(now), event("k", 1), refused).Record)
	c := f.contents()
	if err := c.Changed("q", "one"); err != nil {
		t.Error(err)
	}
	if err := c.Changed("q", "another"); failure.ClassOf(err) != failure.Config {
		t.Errorf("%v", err)
	}
}
