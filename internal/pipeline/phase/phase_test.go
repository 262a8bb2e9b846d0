package phase

import (
	"slices"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestOnlyWhatTheRulesHaveFollows(t *testing.T) {
	for from := Connecting; from <= Ended; from++ {
		for e := Busy; e < events; e++ {
			var told []Phase
			m := New(false, func(a, b Phase) { told = append(told, a, b) })
			m.life.Phase = from
			m.now.Store(int32(from))
			rule := Protocol.After[from][e]
			step, err := m.On(e)
			switch {
			case rule.Do == None:
				if err == nil || m.Now() != from || told != nil {
					t.Errorf("event %d while %s: error %v, now %s, told %v", e, from, err, m.Now(), told)
				}
			case err != nil || m.Now() != rule.Next || step != rule.Do:
				t.Errorf("event %d while %s: step %d, error %v, now %s", e, from, step, err, m.Now())
			case from == rule.Next && told != nil, from != rule.Next && !slices.Equal(told, []Phase{from, rule.Next}):
				t.Errorf("event %d while %s: told %v", e, from, told)
			}
		}
	}
}

// The transactional id is claimed once, and each session passes through all phases.
func TestTheClaimOutlivesASession(t *testing.T) {
	for _, once := range []bool{false, true} {
		var told []Phase
		m := New(once, func(_, to Phase) { told = append(told, to) })
		first := must.Get(m.On(Held))(t)
		must.Get(m.On(Alone))(t)
		if m.Unclaimed() {
			t.Error("claimed, and still to be claimed")
		}
		must.Get(m.On(Lost))(t)
		second := must.Get(m.On(Held))(t)
		want, phases := Claim, []Phase{Holding, Claimed, Connecting, Holding}
		if once {
			want, phases = Compare, append(phases, Claimed)
		}
		if first != Claim || second != want || !slices.Equal(told, phases) {
			t.Errorf("exactly once %t: first step %d, second %d, phases %v", once, first, second, told)
		}
	}
}

// No phase is skipped, as each has its check, but for Standby and Repairing, needed
// now and then. All but Ended lead back to Connecting, and to Ended.
func TestTheTable(t *testing.T) {
	for p := Connecting; p < Ended; p++ {
		if !p.Before(Connecting) || !p.Before(Ended) {
			t.Errorf("%s cannot end", p)
		}
		for next := p + 2; next < Ended; next++ {
			if p.Before(next) && !(p == Connecting && next == Holding || p == Claimed && next == Compared) {
				t.Errorf("%s skips phases before %s", p, next)
			}
		}
	}
}

// Without the comparison, or after the end, a checkpoint may be another process's.
func TestCheckpointsAreSavedFromTheComparisonToTheEnd(t *testing.T) {
	want := map[Phase]bool{Compared: true, Replaying: true, Ready: true}
	for p := Connecting; p <= Ended; p++ {
		if got := p.Saves(); got != want[p] {
			t.Errorf("%s saves checkpoints: %t", p, got)
		}
	}
}

func TestOvertaken(t *testing.T) {
	for _, c := range []struct {
		own, found int64
		want       bool
	}{{0, 5, false}, {5, 5, false}, {5, 4, false}, {5, 6, true}} {
		if got := Overtaken(c.own, c.found); got != c.want {
			t.Errorf("Overtaken(%d, %d) = %t", c.own, c.found, got)
		}
	}
}

func TestTrace(t *testing.T) {
	for name, c := range map[string]struct {
		changes [][2]string
		wrong   bool
	}{
		"a life":              {[][2]string{{"connecting", "holding"}, {"holding", "claimed"}, {"claimed", "ended"}}, false},
		"a successor":         {[][2]string{{"connecting", "standby"}, {"standby", "ended"}, {"connecting", "holding"}}, false},
		"a phase left out":    {[][2]string{{"connecting", "holding"}, {"claimed", "compared"}}, true},
		"a forbidden change":  {[][2]string{{"connecting", "ready"}}, true},
		"a name of no phase":  {[][2]string{{"connecting", "open"}}, true},
		"a life after an end": {[][2]string{{"connecting", "ended"}, {"ended", "connecting"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var trace Trace
			var err error
			for _, change := range c.changes {
				if err = trace.Change(change[0], change[1]); err != nil {
					break
				}
			}
			if (err != nil) != c.wrong {
				t.Errorf("error %v", err)
			}
		})
	}
}
