package storetest

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeClock is moved by hand, from a single goroutine.
type fakeClock struct{ now time.Time }

func newFakeClock() *fakeClock { return &fakeClock{now: time.Unix(1_700_000_000, 0)} }

func (c *fakeClock) Now() time.Time          { return c.now }
func (c *fakeClock) Advance(d time.Duration) { c.now = c.now.Add(d) }

func exact(f fault) Subject {
	clock := newFakeClock()
	s := newReference(clock.Now, f)
	return Subject{Store: s, Operator: s, Advance: clock.Advance}
}

func inRealTime(f fault) Subject {
	s := newReference(time.Now, f)
	return Subject{Store: s, Operator: s}
}

func TestARightStorePasses(t *testing.T) {
	t.Run("exactly", func(t *testing.T) { Histories(t, exact(fault{}), Options{}) })
	t.Run("in real time", func(t *testing.T) { Histories(t, inRealTime(fault{}), Options{}) })
	t.Run("slowly", func(t *testing.T) {
		Histories(t, inRealTime(fault{takes: 5 * time.Millisecond}), Options{Steps: 1000})
	})
}

func TestEveryFaultIsSeenWithAFakeClock(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			o := Options{Seed: 1}.withDefaults(true)
			err := histories(t, exact(f.fault), o)
			if err == nil {
				t.Fatal("the oracle has nothing to say")
			}
			t.Log(err)
		})
	}
}

// rounds bounds the tries of a history of calls at the same time: whether the
// fault shows depends on how the clients meet, though not on the machine, as the
// clock jumps ahead while all wait. The rarest fault shows in a tenth of the
// tries. Even at a thirtieth, so many rounds would miss the fault once in 10^14
// runs.
const rounds = 1000

// seenAmongClients asserts that a fault shows while clients work at the same
// time. Calls take a while: otherwise none would overlap on such a clock.
func seenAmongClients(t *testing.T, f fault, alter func(s *Subject)) {
	t.Helper()
	f.takes = 500 * time.Microsecond
	synctest.Test(t, func(t *testing.T) {
		for range rounds {
			s := inRealTime(f)
			if alter != nil {
				alter(&s)
			}
			o := Options{Steps: 700, Lease: 20 * time.Millisecond}.withDefaults(false)
			if err := histories(t, s, o); err != nil {
				t.Log(err)
				return
			}
		}
		t.Fatal("the oracle has nothing to say")
	})
}

func TestEveryFaultIsSeenAmongClients(t *testing.T) {
	for _, f := range faults {
		if f.exact {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			seenAmongClients(t, f.fault, nil)
		})
	}
}

// A store reading the clock before the write must say so.
func TestReadingTheClockFirst(t *testing.T) {
	lagging := func(f fault) fault { f.lags = true; return f }
	declared := func(s *Subject) { s.ReadsClockFirst = true }
	t.Run("declared", func(t *testing.T) {
		s := inRealTime(lagging(fault{}))
		declared(&s)
		Histories(t, s, Options{Steps: 1000})
	})
	t.Run("declared, and retention is short", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for range 100 {
				s := inRealTime(lagging(fault{takes: 500 * time.Microsecond}))
				declared(&s)
				Histories(t, s, Options{Steps: 700, Lease: 20 * time.Millisecond})
			}
		})
	})
	t.Run("not declared", func(t *testing.T) { seenAmongClients(t, lagging(fault{}), nil) })
	for _, f := range faults {
		if f.exact {
			continue
		}
		t.Run("declared, and "+f.name, func(t *testing.T) {
			t.Parallel()
			seenAmongClients(t, lagging(f.fault), declared)
		})
	}
}

func TestReadingBeforeWritingIsSeen(t *testing.T) { seenAmongClients(t, fault{races: true}, nil) }

func TestAnswersThatAreMixedUpAreSeen(t *testing.T) { seenAmongClients(t, fault{mixes: true}, nil) }

func TestLeasesOnTheClientsClockAreSeen(t *testing.T) {
	skewed := func(s *Subject) { s.Skewed = s.Store.(*reference).skewed }
	t.Run("exactly", func(t *testing.T) {
		s := exact(fault{})
		skewed(&s)
		if err := histories(t, s, Options{Seed: 1}.withDefaults(true)); err == nil {
			t.Fatal("the oracle has nothing to say")
		}
	})
	t.Run("among clients", func(t *testing.T) { seenAmongClients(t, fault{}, skewed) })
}

// A failure must show the seed's history, and no more than a person can read.
func TestAFailureShowsTheEndOfTheHistory(t *testing.T) {
	completed := faults[slices.IndexFunc(faults, func(f named) bool { return f.name == "completed keys are claimed" })]
	err := histories(t, exact(completed.fault), Options{Seed: 1}.withDefaults(true))
	if err == nil {
		t.Fatal("the oracle has nothing to say")
	}
	text := err.Error()
	for _, want := range []string{"step ", "claim owner=", "complete owner=", "when the key could be", "completed owner="} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if lines := strings.Count(text, "\n"); lines > maxTail+maxBeliefs+6 {
		t.Errorf("%d lines:\n%s", lines, text)
	}
}
