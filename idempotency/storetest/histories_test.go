package storetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeClock is moved by hand, from one goroutine.
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

// rounds bounds how often a history in real time is tried: what shows depends
// on how the clients meet. The rarest fault shows in one of four, so that these
// miss it once in 10^12 runs.
const rounds = 100

func seenInRealTime(t *testing.T, subject func() Subject) {
	t.Helper()
	for range rounds {
		o := Options{Steps: 700, Lease: 20 * time.Millisecond}.withDefaults(false)
		if err := histories(t, subject(), o); err != nil {
			t.Log(err)
			return
		}
	}
	t.Fatal("the oracle has nothing to say")
}

func TestEveryFaultIsSeenInRealTime(t *testing.T) {
	for _, f := range faults {
		if f.exact {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			seenInRealTime(t, func() Subject { return inRealTime(f.fault) })
		})
	}
}

// A store that can only read the clock before it writes says so.
func TestReadingTheClockFirst(t *testing.T) {
	lagging := func(f fault, declared bool) Subject {
		f.lags = true
		s := inRealTime(f)
		s.ReadsClockFirst = declared
		return s
	}
	t.Run("declared", func(t *testing.T) { Histories(t, lagging(fault{}, true), Options{Steps: 1000}) })
	t.Run("not declared", func(t *testing.T) {
		seenInRealTime(t, func() Subject { return lagging(fault{}, false) })
	})
	for _, f := range faults {
		if f.exact {
			continue
		}
		t.Run("declared, and "+f.name, func(t *testing.T) {
			t.Parallel()
			seenInRealTime(t, func() Subject { return lagging(f.fault, true) })
		})
	}
}

func TestReadingBeforeWritingIsSeen(t *testing.T) {
	seenInRealTime(t, func() Subject { return inRealTime(fault{races: true}) })
}

func TestLeasesOnTheClientsClockAreSeen(t *testing.T) {
	t.Run("exactly", func(t *testing.T) {
		s := exact(fault{})
		s.Skewed = s.Store.(*reference).skewed
		if err := histories(t, s, Options{Seed: 1}.withDefaults(true)); err == nil {
			t.Fatal("the oracle has nothing to say")
		}
	})
	t.Run("in real time", func(t *testing.T) {
		seenInRealTime(t, func() Subject {
			s := inRealTime(fault{})
			s.Skewed = s.Store.(*reference).skewed
			return s
		})
	})
}

// A failure must name the seed's history, and not more of it than one can read.
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
