package phase

import (
	"slices"
	"testing"
)

func TestOnlyWhatTheTableAllowsFollows(t *testing.T) {
	for from := Connecting; from <= Ended; from++ {
		for to := Connecting; to <= Ended; to++ {
			var told []Phase
			m := Machine{Tell: func(a, b Phase) { told = append(told, a, b) }}
			m.now.Store(int32(from))
			err := m.To(to)
			switch {
			case !from.Before(to):
				if err == nil || m.Now() != from || told != nil || m.Been(to) {
					t.Errorf("%s after %s: error %v, now %s, told %v", to, from, err, m.Now(), told)
				}
			case err != nil || m.Now() != to || !m.Been(to):
				t.Errorf("%s after %s: error %v, now %s", to, from, err, m.Now())
			case from == to && told != nil, from != to && !slices.Equal(told, []Phase{from, to}):
				t.Errorf("%s after %s: told %v", to, from, told)
			}
		}
	}
}

// No phase is skipped, as each has its check. All but Ended lead back to Connecting, and to
// Ended.
func TestTheTable(t *testing.T) {
	for p := Connecting; p < Ended; p++ {
		if !p.Before(Connecting) || !p.Before(Ended) {
			t.Errorf("%s cannot end", p)
		}
		for next := p + 2; next < Ended; next++ {
			if p.Before(next) && !(p == Connecting && next == Holding) {
				t.Errorf("%s skips phases before %s", p, next)
			}
		}
	}
}

func TestMust(t *testing.T) {
	m := Machine{Tell: func(Phase, Phase) {}}
	if err := m.Must(Connecting); err != nil {
		t.Error(err)
	}
	if err := m.Must(Ready); err == nil {
		t.Error("a pipeline that connects is ready")
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
