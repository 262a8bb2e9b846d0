package placement

import (
	"fmt"
	"slices"
	"testing"
)

// offers are pipelines p0, p1, … with a specification.
func offers(n int, spec string, loaded int64) (all []Offer) {
	for i := range n {
		all = append(all, Offer{Pipeline: fmt.Sprintf("p%d", i), Spec: spec, Loaded: loaded})
	}
	return all
}

func holds(spec string, names ...string) (all []Hold) {
	for _, name := range names {
		all = append(all, Hold{Pipeline: name, Spec: spec})
	}
	return all
}

func runs(d Decision, member string) (names []string) {
	for _, p := range d.Run[member] {
		names = append(names, p.Pipeline)
	}
	return names
}

func TestDecide(t *testing.T) {
	old, next := offers(4, "old", 1), offers(4, "new", 2)
	zoned := []Offer{{Pipeline: "p0", Spec: "old", Loaded: 1, Rack: "b"}, {Pipeline: "p1", Spec: "old", Loaded: 1}, {Pipeline: "p2", Spec: "old", Loaded: 1}}
	for _, test := range []struct {
		name    string
		members []Member
		run     map[string][]string // after the decision
		moves   []Move
		waits   []Wait
	}{
		{
			name:    "pipelines of nobody are shared out",
			members: []Member{{Name: "a", Offers: old}, {Name: "b", Offers: old}},
			run:     map[string][]string{"a": {"p0", "p2"}, "b": {"p1", "p3"}},
		}, {
			name:    "without a change nothing moves",
			members: []Member{{Name: "a", Offers: old, Holds: holds("old", "p0", "p1")}, {Name: "b", Offers: old, Holds: holds("old", "p2", "p3")}},
			run:     map[string][]string{"a": {"p0", "p1"}, "b": {"p2", "p3"}},
		}, {
			name:    "a new member gets a pipeline after its holder has let go",
			members: []Member{{Name: "a", Offers: old, Holds: holds("old", "p0", "p1", "p2", "p3")}, {Name: "b", Offers: old}},
			run:     map[string][]string{"a": {"p1", "p2", "p3"}},
			moves:   []Move{{"p0", "a", "b", Balance}},
			waits:   []Wait{{"p0", "a"}},
		}, {
			name: "a pipeline that starts stays, and another moves",
			members: []Member{
				{Name: "a", Offers: old, Holds: append([]Hold{{Pipeline: "p0", Spec: "old", Starting: true}}, holds("old", "p1", "p2", "p3")...)},
				{Name: "b", Offers: old},
			},
			run:   map[string][]string{"a": {"p0", "p2", "p3"}},
			moves: []Move{{"p1", "a", "b", Balance}},
			waits: []Wait{{"p1", "a"}},
		}, {
			name: "a pipeline that starts leaves a drained member",
			members: []Member{
				{Name: "a", Offers: old[:1], Drained: true, Holds: []Hold{{Pipeline: "p0", Spec: "old", Starting: true}}},
				{Name: "b", Offers: old[:1]},
			},
			moves: []Move{{"p0", "a", "b", Drain}},
			waits: []Wait{{"p0", "a"}},
		}, {
			name: "a pipeline that drains is nobody's, and no other moves meanwhile",
			members: []Member{
				{Name: "a", Offers: old, Holds: append(holds("old", "p1", "p2", "p3"), Hold{Pipeline: "p0", Spec: "old", Stopping: true})},
				{Name: "b", Offers: old},
			},
			run:   map[string][]string{"a": {"p1", "p2", "p3"}},
			waits: []Wait{{"p0", "a"}},
		}, {
			name:    "what a holder has let go goes to the member with the least load",
			members: []Member{{Name: "a", Offers: old, Holds: holds("old", "p1", "p2", "p3")}, {Name: "b", Offers: old}},
			run:     map[string][]string{"a": {"p2", "p3"}, "b": {"p0"}},
			moves:   []Move{{"p1", "a", "b", Balance}},
			waits:   []Wait{{"p1", "a"}},
		}, {
			name:    "a drained member gets none, and loses one at a time",
			members: []Member{{Name: "a", Offers: old, Drained: true, Holds: holds("old", "p0", "p1")}, {Name: "b", Offers: old}},
			run:     map[string][]string{"a": {"p1"}, "b": {"p2", "p3"}},
			moves:   []Move{{"p0", "a", "b", Drain}},
			waits:   []Wait{{"p0", "a"}},
		}, {
			name:    "a drained member keeps and takes what nobody else can run",
			members: []Member{{Name: "a", Offers: old, Drained: true, Holds: holds("old", "p0")}, {Name: "b"}},
			run:     map[string][]string{"a": {"p0", "p1", "p2", "p3"}},
		}, {
			name:    "a leaving member takes nothing and lets go of all",
			members: []Member{{Name: "a", Offers: old, Leaving: true, Holds: holds("old", "p0", "p1")}},
			waits:   []Wait{{"p0", "a"}, {"p1", "a"}, {"p2", ""}, {"p3", ""}},
		}, {
			name:    "pipelines of nobody go to the newest specification only",
			members: []Member{{Name: "a", Offers: old}, {Name: "b", Offers: next}},
			run:     map[string][]string{"b": {"p0", "p1", "p2", "p3"}},
		}, {
			name: "a new file rolls out one pipeline at a time",
			members: []Member{
				{Name: "a", Offers: old, Holds: holds("old", "p0", "p1")}, {Name: "b", Offers: old, Holds: holds("old", "p2", "p3")},
				{Name: "c", Offers: next},
			},
			run:   map[string][]string{"a": {"p1"}, "b": {"p2", "p3"}},
			moves: []Move{{"p0", "a", "c", Rollout}},
			waits: []Wait{{"p0", "a"}},
		}, {
			name:    "a member with a new file takes no more than its share",
			members: []Member{{Name: "a", Offers: old, Holds: holds("old", "p0", "p1")}, {Name: "b", Offers: next, Holds: holds("new", "p2", "p3")}},
			run:     map[string][]string{"a": {"p0", "p1"}, "b": {"p2", "p3"}},
		}, {
			name:    "a file read anew by the holder is taken there",
			members: []Member{{Name: "a", Offers: next, Holds: holds("old", "p0", "p1", "p2", "p3")}},
			run:     map[string][]string{"a": {"p0", "p1", "p2", "p3"}},
			moves:   []Move{{"p0", "a", "a", Rollout}},
		}, {
			name:    "a pipeline of no file any more ends",
			members: []Member{{Name: "a", Offers: old[:3], Holds: holds("old", "p0", "p1", "p3")}, {Name: "b", Offers: old[:3], Holds: holds("old", "p2")}},
			run:     map[string][]string{"a": {"p0", "p1"}, "b": {"p2"}},
			waits:   []Wait{{"p3", "a"}},
		}, {
			name:    "a pipeline of another's file goes on",
			members: []Member{{Name: "a", Offers: old[:3], Holds: holds("old", "p0", "p3")}, {Name: "b", Offers: old, Holds: holds("old", "p1", "p2")}},
			run:     map[string][]string{"a": {"p0", "p3"}, "b": {"p1", "p2"}},
		}, {
			name:    "a pipeline that changes at its holder is in motion",
			members: []Member{{Name: "a", Offers: next, Holds: append(holds("old", "p1", "p2", "p3"), Hold{Pipeline: "p0", Spec: "new", Changing: true})}},
			run:     map[string][]string{"a": {"p0", "p1", "p2", "p3"}},
		}, {
			name: "of two holders, the owner has the newest specification",
			members: []Member{
				{Name: "a", Offers: old, Holds: holds("old", "p0", "p1")},
				{Name: "b", Offers: next, Holds: holds("new", "p0", "p2", "p3")},
			},
			run: map[string][]string{"a": {"p1"}, "b": {"p0", "p2", "p3"}},
		}, {
			name:    "the zone of the database is preferred",
			members: []Member{{Name: "a", Rack: "a", Offers: zoned, Holds: holds("old", "p0", "p2")}, {Name: "b", Rack: "b", Offers: zoned, Holds: holds("old", "p1")}},
			run:     map[string][]string{"a": {"p2"}, "b": {"p1"}},
			moves:   []Move{{"p0", "a", "b", Zone}},
			waits:   []Wait{{"p0", "a"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := Decide(test.members, nil, 1)
			for _, m := range test.members {
				if got := runs(d, m.Name); !slices.Equal(got, test.run[m.Name]) {
					t.Errorf("%s runs %v, want %v", m.Name, got, test.run[m.Name])
				}
			}
			if !slices.Equal(d.Moves, test.moves) {
				t.Errorf("moves %v, want %v", d.Moves, test.moves)
			}
			if !slices.Equal(d.Waits, test.waits) {
				t.Errorf("waits %v, want %v", d.Waits, test.waits)
			}
		})
	}
}

func TestHistoryTellsAMoveFromALoss(t *testing.T) {
	all := offers(2, "s", 1)
	a := Member{Name: "a", Offers: all, Drained: true, Holds: holds("s", "p0", "p1")}
	b := Member{Name: "b", Offers: all}
	var h History
	note := func(at int64, members ...Member) []Event { return h.Note(members, Decide(members, h.Rates, 1), at) }

	if got := note(1, a, b); !slices.Equal(got, []Event{{Move: Move{"p0", "a", "b", Drain}, Began: 1}}) {
		t.Errorf("a drain: %v", got)
	}
	a.Holds = holds("s", "p1")
	if got := note(2, a, b); !slices.Equal(got, []Event{
		{Move: Move{"p0", "a", "b", Drain}, Began: 1, Placed: 2},
		{Move: Move{"p1", "a", "b", Drain}, Began: 2},
	}) {
		t.Errorf("the end of a move: %v", got)
	}
	a.Holds, b.Holds = nil, holds("s", "p0")
	note(3, a, b)
	if got := note(4, Member{Name: "a", Offers: all}); !slices.Equal(got, []Event{
		{Move: Move{"p0", "b", "a", Gone}, Placed: 4},
		{Move: Move{"p1", "b", "a", Gone}, Placed: 4},
	}) {
		t.Errorf("a lost member: %v", got)
	}
}
