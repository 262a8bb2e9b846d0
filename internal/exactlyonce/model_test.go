package exactlyonce

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// violation is what must not be in a state; "" for nothing.
func (w *world) violation() string {
	switch {
	case w.wrong:
		return "a consumer reads an event again, too early, or as it was refused"
	case w.confirmed > w.published:
		return fmt.Sprintf("confirmed up to %d with %d published", w.confirmed, w.published)
	}
	return ""
}

// finished reports whether everything is published and confirmed.
func (w *world) finished() bool { return w.published == events && w.confirmed == events }

// search explores every state and returns what is wrong with one of them, with
// the way there; "" for nothing. A state from which no way without further
// faults leads to the end is wrong, too.
func (m *model) search(faults int8) (wrong string, states int) {
	type origin struct {
		from int
		step string
	}
	start := first(faults)
	index := map[world]int{start: 0}
	worlds, origins := []world{start}, []origin{{-1, ""}}
	way := func(n int) string {
		var steps []string
		for ; n > 0; n = origins[n].from {
			steps = append([]string{origins[n].step}, steps...)
		}
		return strings.Join(steps, "; ")
	}
	before := [][]int{nil} // by steps that are no faults
	for n := 0; n < len(worlds); n++ {
		if v := worlds[n].violation(); v != "" {
			return v + " after: " + way(n), len(worlds)
		}
		for _, s := range m.steps(worlds[n]) {
			k, known := index[s.next]
			if !known {
				k = len(worlds)
				index[s.next] = k
				worlds, origins, before = append(worlds, s.next), append(origins, origin{n, s.name}), append(before, nil)
			}
			if !s.fault {
				before[k] = append(before[k], n)
			}
		}
	}
	ends := make([]bool, len(worlds)) // a way leads to the end
	var todo []int
	for n := range worlds {
		if worlds[n].finished() {
			ends[n] = true
			todo = append(todo, n)
		}
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, k := range before[n] {
			if !ends[k] {
				ends[k] = true
				todo = append(todo, k)
			}
		}
	}
	for n := range worlds {
		if !ends[n] {
			return fmt.Sprintf("no end can be reached, published %d, confirmed %d, after: %s", worlds[n].published, worlds[n].confirmed, way(n)), len(worlds)
		}
	}
	return "", len(worlds)
}

func TestProtocolIsRightInEveryState(t *testing.T) { wantRight(t, 2) }

// TestE2EProtocolIsRightInEveryStateOfALargerWorld takes longer.
func TestE2EProtocolIsRightInEveryStateOfALargerWorld(t *testing.T) { wantRight(t, 3) }

func wantRight(t *testing.T, faults int8) {
	t.Helper()
	for _, refused := range []bool{false, true} {
		m := model{refused: refused}
		wrong, states := m.search(faults)
		if wrong != "" {
			t.Fatalf("event 2 is refused: %t: %s", refused, wrong)
		}
		t.Logf("event 2 is refused: %t: %d states with up to %d faults", refused, states, faults)
	}
}

// TestEveryMistakeIsFound proves the search.
func TestEveryMistakeIsFound(t *testing.T) {
	for m := commitRetriedAsSuccess; m <= checkpointBesideTransaction; m++ {
		t.Run(strings.ReplaceAll(m.String(), " ", "_"), func(t *testing.T) {
			found := model{mistake: m, refused: m == refusedRecordDropped}
			wrong, states := found.search(2)
			if wrong == "" {
				t.Fatalf("not found in %d states", states)
			}
			t.Log(wrong)
		})
	}
}
