package checkpoint

import (
	"reflect"
	"slices"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

func TestConfirmed(t *testing.T) {
	doubtful := func(lsn pg.LSN, committed bool) Doubtful {
		return Doubtful{Saved: Checkpoint{LSN: lsn, Epoch: 7}, Committed: committed}
	}
	all := []Doubtful{doubtful(100, true), doubtful(120, true), doubtful(140, false)}
	found := Checkpoint{LSN: 100, Epoch: 7, Doubtful: all}
	for slot, want := range map[pg.LSN]Checkpoint{
		90:  found, // a confirmed position may get lost, when the server dies
		100: found, // the first is further in the same transaction of the database
		110: found,
		120: {LSN: 120, Epoch: 7, Doubtful: all[2:]},
		140: {LSN: 120, Epoch: 7, Doubtful: all[2:]}, // somebody else did that
	} {
		found.Doubtful[0].Saved.Cut = Cut{Landmark: Landmark{Commit: 110}, Seq: 3}
		if got := found.Confirmed(slot); !reflect.DeepEqual(got, want) {
			t.Errorf("slot at %s: got %+v, want %+v", slot, got, want)
		}
	}
}

func TestDoubtIsOverOnceItIsPassed(t *testing.T) {
	cut := func(seq uint32) Cut { return Cut{Landmark: Landmark{Commit: 150}, Seq: seq} }
	at := Checkpoint{LSN: 100, Doubtful: []Doubtful{{Saved: Checkpoint{LSN: 120}}, {Saved: Checkpoint{LSN: 130, Cut: cut(5)}}}}
	for _, tt := range []struct {
		lsn  pg.LSN
		cut  Cut
		left int
	}{
		{100, Cut{}, 2}, {119, Cut{}, 2}, {120, Cut{}, 1}, {130, Cut{}, 1}, {130, cut(4), 1}, {130, cut(5), 0}, {151, Cut{}, 0},
	} {
		if got := at.Reached(tt.lsn, Landmark{}, tt.cut); len(got.Doubtful) != tt.left || len(at.Doubtful) != 2 {
			t.Errorf("at %s and %d: %+v, want %d in doubt", tt.lsn, tt.cut.Seq, got.Doubtful, tt.left)
		}
	}
}

// The outcome of a Kafka transaction with parked events is in doubt until all of them are
// settled, whatever the position.
func TestADoubtfulReleaseIsPassedByItsEventsOnly(t *testing.T) {
	torn := Doubtful{Saved: Checkpoint{LSN: 20, Settled: []uint64{1, 2}}}
	c := Checkpoint{LSN: 20, Doubtful: []Doubtful{torn}}.Reached(30, Landmark{}, Cut{})
	if len(c.Doubtful) != 1 {
		t.Error("passed by the position")
	}
	if left := c.Resolved(func(number uint64) bool { return number == 2 }).Doubtful; len(left) != 1 {
		t.Error("passed with an event parked")
	}
	if left := c.Resolved(func(uint64) bool { return false }).Doubtful; len(left) != 0 || len(c.Doubtful) != 1 {
		t.Errorf("%d left, %d of the original", len(left), len(c.Doubtful))
	}
}

// Both checkpoints count: the later one, and the one that the slot confirms.
func TestAConfirmedCheckpointKeepsWhatIsSettled(t *testing.T) {
	whole := Doubtful{Saved: Checkpoint{LSN: 30, Settled: []uint64{1}}, Committed: true}
	c := Checkpoint{LSN: 20, Settled: []uint64{2}, Doubtful: []Doubtful{whole}}.Confirmed(30)
	if c.LSN != 30 || !slices.Equal(c.Settled, []uint64{1, 2}) {
		t.Errorf("%d, settled %v", c.LSN, c.Settled)
	}
}
