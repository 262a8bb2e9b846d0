package exactlyonce

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// violation is a state's violation of the invariants, or "".
func (m *model) violation(w *world) string {
	switch {
	case w.wrong:
		return "a consumer reads an event again, too early, or as it was refused"
	case w.parked.has(1) && !w.published.has(1) && w.published.has(3):
		return "a consumer reads an event before a parked one of its key"
	case m.whole && w.dealt().has(1) != w.dealt().has(2) && !w.forgotten:
		return "a consumer reads a part of a transaction"
	case w.confirmed > w.dealt().prefix() && !m.lacksLog(w):
		return fmt.Sprintf("confirmed up to %d with %d published or parked", w.confirmed, w.dealt().prefix())
	}
	return ""
}

// finished reports whether everything is published and confirmed.
func (w *world) finished() bool {
	return w.published.prefix() == events && w.confirmed == events && !w.lost && !w.gone
}

// search explores every state and returns the first violation with the steps before,
// or "". A state without a way to the end, in which no more faults happen, is wrong,
// too.
//
// States reached by fewer faults come first. A state reached again after more faults
// is not explored again: with fewer faults left, no more can happen.
func (m *model) search(faults int) (wrong string, found int) {
	m.rules = m.mistake.mistaken()
	begin := start()
	if m.repairs {
		begin.rows = 0
	}
	begin.order()
	var known states
	known.add(begin.key())
	origins := []int32{-1}
	from, ways := int32(0), edges{} // ways are steps other than faults
	visit := func(s *step) {
		to, isNew := known.add(s.next.key())
		if isNew {
			origins = append(origins, from)
		}
		ways.add(from, to)
	}
	fail := func(s *step) {
		if _, isNew := known.add(s.next.key()); isNew {
			origins = append(origins, from)
		}
	}
	for level := int32(0); ; faults-- {
		for from = level; from < known.len(); from++ {
			w := known.world(from)
			if v := m.violation(&w); v != "" {
				return v + " after: " + m.way(&known, origins, from), int(known.len())
			}
			m.steps(&w, false, visit)
		}
		if faults == 0 {
			break
		}
		end := known.len()
		for from = level; from < end; from++ {
			w := known.world(from)
			m.steps(&w, true, fail)
		}
		level = end
	}
	finished := func(n int) bool { w := known.world(int32(n)); return w.finished() }
	for n, ends := range ways.leadTo(int(known.len()), finished) {
		if w := known.world(int32(n)); !ends {
			return fmt.Sprintf("no end can be reached, published %d, confirmed %d, after: %s",
				w.published.prefix(), w.confirmed, m.way(&known, origins, int32(n))), int(known.len())
		}
	}
	return "", int(known.len())
}

// way names the steps to a state.
func (m *model) way(known *states, origins []int32, n int32) string {
	var path []int32
	for ; n >= 0; n = origins[n] {
		path = append(path, n)
	}
	var names []string
	turned := int8(0) // 1: the instances have changed places
	for i := len(path) - 1; i > 0; i-- {
		w, next, found := known.world(path[i]), known.key(path[i-1]), false
		for _, faults := range []bool{false, true} {
			m.steps(&w, faults, func(s *step) {
				if found || !bytes.Equal(s.next.key(), next) {
					return
				}
				found = true
				name := s.name
				if s.of != nobody {
					name = fmt.Sprintf("%c %s", 'A'+(s.of^turned), name)
				}
				names = append(names, name)
				if s.swapped {
					turned ^= 1
				}
			})
		}
	}
	return strings.Join(names, "; ")
}

func TestProtocolIsRightInEveryState(t *testing.T) {
	wantRight(t, 2, scenarios...)
	for _, shared := range []bool{false, true} {
		wantRight(t, 2, model{halves: true, shared: shared, whole: true}, model{halves: true, shared: shared, whole: true, refused: true})
	}
	wantRight(t, 2, model{repairs: true, whole: true})
	wantRight(t, 1, model{parks: true, halves: true, whole: true}, model{parks: true, halves: true, whole: true, shared: true})
}

// TestE2EProtocolIsRightInEveryStateOfALargerWorld takes longer.
func TestE2EProtocolIsRightInEveryStateOfALargerWorld(t *testing.T) {
	wantRight(t, 3, scenarios...)
	for _, shared := range []bool{false, true} {
		wantRight(t, 2, model{halves: true, shared: shared}, model{halves: true, shared: shared, refused: true})
		wantRight(t, 3, model{halves: true, shared: shared, whole: true})
	}
	wantRight(t, 3, model{repairs: true, whole: true}, model{repairs: true})
}

var scenarios = []model{{}, {refused: true}, {whole: true}, {whole: true, refused: true}, {parks: true}, {parks: true, whole: true}}

func wantRight(t *testing.T, faults int, models ...model) {
	t.Helper()
	for _, m := range models {
		wrong, states := m.search(faults)
		scenario := fmt.Sprintf("event 2 is refused: %t, transactions are whole: %t, may be ended by halves: %t, share an epoch: %t, event 1 is parked: %t, the slot may be lost: %t",
			m.refused, m.whole, m.halves, m.shared, m.parks, m.repairs)
		if wrong != "" {
			t.Fatalf("%s: %s", scenario, wrong)
		}
		t.Logf("%s: %d states with up to %d faults", scenario, states, faults)
	}
}

// TestEveryMistakeIsFound proves the search.
func TestEveryMistakeIsFound(t *testing.T) {
	for m := commitRetriedAsSuccess; m <= comparedBeforeClaim; m++ {
		t.Run(strings.ReplaceAll(m.String(), " ", "_"), func(t *testing.T) {
			found := model{mistake: m, refused: m == refusedRecordDropped || m == partBeforeRefused, whole: m == partBeforeRefused || m >= laterSnapshotTrusted || m == slotNotAsked || m == believedUnproved,
				halves: m >= tornCheckpointCounts && m <= believedUnproved || m == endedWithEvent, parks: m >= releasedOutOfOrder && m <= endedWithEvent, repairs: m >= laterSnapshotTrusted, shared: m == endRepeated || m == doubtForgotten || m == slotNotAsked}
			faults := 2
			if m == believedUnproved || m == comparedBeforeClaim {
				faults = 3
			}
			wrong, states := found.search(faults)
			if wrong == "" {
				t.Fatalf("not found in %d states", states)
			}
			t.Log(wrong)
		})
	}
}
