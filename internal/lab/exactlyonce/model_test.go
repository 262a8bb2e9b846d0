package exactlyonce

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// violation is what must not be in a state; "" for nothing.
func (m *model) violation(w *world) string {
	switch {
	case w.wrong:
		return "a consumer reads an event again, too early, or as it was refused"
	case m.whole && w.published.has(1) != w.published.has(2) && !w.forgotten:
		return "a consumer reads a part of a transaction"
	case w.confirmed > w.published.prefix():
		return fmt.Sprintf("confirmed up to %d with %d published", w.confirmed, w.published.prefix())
	}
	return ""
}

// finished reports whether everything is published and confirmed.
func (w *world) finished() bool { return w.published.prefix() == events && w.confirmed == events }

// search explores every state and returns what is wrong with one of them, with
// the way there; "" for nothing. A state from which no way without further
// faults leads to the end is wrong, too.
func (m *model) search(faults int8) (wrong string, states int) {
	begin := start(faults)
	begin.order()
	index := map[world]int32{begin: 0}
	worlds, origins := []world{begin}, []int32{-1}
	var ways edges // by steps that are no faults
	var steps []step
	for n := 0; n < len(worlds); n++ {
		if v := m.violation(&worlds[n]); v != "" {
			return v + " after: " + m.way(worlds, origins, n), len(worlds)
		}
		steps = m.steps(&worlds[n], steps[:0])
		for i := range steps {
			s := &steps[i]
			k, known := index[s.next]
			if !known {
				k = int32(len(worlds))
				index[s.next] = k
				worlds, origins = append(worlds, s.next), append(origins, int32(n))
			}
			if !s.fault {
				ways.add(int32(n), k)
			}
		}
	}
	for n, ends := range ways.leadTo(len(worlds), func(n int) bool { return worlds[n].finished() }) {
		if !ends {
			return fmt.Sprintf("no end can be reached, published %d, confirmed %d, after: %s",
				worlds[n].published.prefix(), worlds[n].confirmed, m.way(worlds, origins, n)), len(worlds)
		}
	}
	return "", len(worlds)
}

// way names the steps to a state.
func (m *model) way(worlds []world, origins []int32, n int) string {
	var path []int
	for ; n >= 0; n = int(origins[n]) {
		path = append(path, n)
	}
	var names []string
	turned := int8(0) // 1: the instances have changed places
	for i := len(path) - 1; i > 0; i-- {
		steps := m.steps(&worlds[path[i]], nil)
		s := steps[slices.IndexFunc(steps, func(s step) bool { return s.next == worlds[path[i-1]] })]
		name := s.name
		if s.of != nobody {
			name = fmt.Sprintf("%c %s", 'A'+(s.of^turned), name)
		}
		names = append(names, name)
		if s.swapped {
			turned ^= 1
		}
	}
	return strings.Join(names, "; ")
}

func TestProtocolIsRightInEveryState(t *testing.T) {
	wantRight(t, 2, scenarios...)
	for _, shared := range []bool{false, true} {
		wantRight(t, 2, model{halves: true, shared: shared, whole: true}, model{halves: true, shared: shared, whole: true, refused: true})
	}
}

// TestE2EProtocolIsRightInEveryStateOfALargerWorld takes longer.
func TestE2EProtocolIsRightInEveryStateOfALargerWorld(t *testing.T) {
	wantRight(t, 3, scenarios...)
	for _, shared := range []bool{false, true} {
		wantRight(t, 2, model{halves: true, shared: shared}, model{halves: true, shared: shared, refused: true})
		wantRight(t, 3, model{halves: true, shared: shared, whole: true})
	}
}

var scenarios = []model{{}, {refused: true}, {whole: true}, {whole: true, refused: true}}

func wantRight(t *testing.T, faults int8, models ...model) {
	t.Helper()
	for _, m := range models {
		wrong, states := m.search(faults)
		scenario := fmt.Sprintf("event 2 is refused: %t, transactions are whole: %t, may be ended by halves: %t, share an epoch: %t",
			m.refused, m.whole, m.halves, m.shared)
		if wrong != "" {
			t.Fatalf("%s: %s", scenario, wrong)
		}
		t.Logf("%s: %d states with up to %d faults", scenario, states, faults)
	}
}

// TestEveryMistakeIsFound proves the search.
func TestEveryMistakeIsFound(t *testing.T) {
	for m := commitRetriedAsSuccess; m <= believedUnproved; m++ {
		t.Run(strings.ReplaceAll(m.String(), " ", "_"), func(t *testing.T) {
			found := model{mistake: m, refused: m == refusedRecordDropped || m == partBeforeRefused, whole: m == partBeforeRefused || m >= slotNotAsked,
				halves: m >= tornCheckpointCounts, shared: m == endRepeated || m == doubtForgotten || m == slotNotAsked}
			faults := int8(2)
			if m == believedUnproved {
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
