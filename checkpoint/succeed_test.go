package checkpoint

import (
	"reflect"
	"testing"
)

func TestSucceeding(t *testing.T) {
	landmark, position := Landmark{Commit: 90, XID: 7}, Landmark{Commit: 100}
	seen := Checkpoint{LSN: 100, Landmark: position, Scope: "public.outbox", Snapshot: true, Publication: "now"}
	found := Checkpoint{
		LSN: 100, Landmark: landmark, Scope: "public.outbox", Epoch: 5, Horizon: 700, Doubtful: []Doubtful{{}},
		Skip: Landmark{Commit: 120}, Publication: "then", Made: true, Adopted: true, Lost: &Lost{}, Upgrade: &Upgrade{},
		Accepted: &AcceptedGap{ID: "g"},
	}
	kept := Checkpoint{
		LSN: 100, Landmark: landmark, Scope: "public.outbox", Epoch: 6, Horizon: 700, Published: true, Doubtful: []Doubtful{{}},
		Skip: Landmark{Commit: 120}, Publication: "now", Accepted: found.Accepted,
	}
	for name, change := range map[string]func(found, want *Checkpoint){
		"the same log":       func(_, _ *Checkpoint) {},
		"a snapshot pending": func(found, want *Checkpoint) { found.Snapshot, want.Snapshot = true, true },
		"a skip not passed":  func(found, want *Checkpoint) { found.Skip.Commit, want.Skip.Commit = 100, 100 },
		"a skip passed":      func(found, want *Checkpoint) { found.Skip.Commit, want.Skip = 99, Landmark{} },
		"other tables":       func(found, want *Checkpoint) { found.Scope, want.Landmark = "public.other", position },
		"behind the slot":    func(found, want *Checkpoint) { found.LSN, want.Landmark = 95, position },
		"without a transaction": func(found, want *Checkpoint) {
			found.Landmark, want.Landmark, want.Published = Landmark{}, position, false
		},
		"rows of a snapshot published": func(found, want *Checkpoint) {
			found.Landmark, found.Snapshot, found.Initial = Landmark{}, true, &Initial{Rows: 3}
			want.Landmark, want.Snapshot, want.Initial = position, true, found.Initial
		},
		"no row of a snapshot published": func(found, want *Checkpoint) {
			found.Landmark, found.Snapshot, found.Initial = Landmark{}, true, &Initial{}
			want.Landmark, want.Snapshot, want.Initial, want.Published = position, true, found.Initial, false
		},
		"published long before": func(found, want *Checkpoint) {
			found.Landmark, found.Published, want.Landmark = Landmark{}, true, position
		},
		"without a known epoch":  func(found, want *Checkpoint) { found.Epoch, want.Epoch = 0, 1 },
		"without any checkpoint": nil,
	} {
		t.Run(name, func(t *testing.T) {
			got, want := seen.Succeeding(nil), seen
			if change != nil {
				found, expected := found, kept
				change(&found, &expected)
				got, want = seen.Succeeding(&found), expected
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}
