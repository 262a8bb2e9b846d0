package checkpoint

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

func TestReached(t *testing.T) {
	at := func(commit pg.LSN) Landmark {
		return Landmark{Commit: commit, XID: uint32(commit), Time: time.Unix(1, 0)}
	}
	begin := Checkpoint{LSN: 100, Landmark: at(90), Cut: Cut{at(120), 5}}
	for name, tt := range map[string]struct {
		lsn      pg.LSN
		landmark Landmark
		cut      Cut
		want     Checkpoint
	}{
		"nothing new":             {100, at(90), Cut{}, begin},
		"nothing known here":      {0, Landmark{}, Cut{}, begin},
		"further in its middle":   {100, at(90), Cut{at(120), 7}, Checkpoint{LSN: 100, Landmark: at(90), Cut: Cut{at(120), 7}}},
		"not back in its middle":  {100, at(90), Cut{at(120), 2}, begin},
		"its end":                 {130, at(120), Cut{}, Checkpoint{LSN: 130, Landmark: at(120)}},
		"its end, read again":     {130, Landmark{}, Cut{}, Checkpoint{LSN: 130, Landmark: at(120)}}, // all of its events were acked before
		"into the next one":       {130, at(120), Cut{at(150), 0}, Checkpoint{LSN: 130, Landmark: at(120), Cut: Cut{at(150), 0}}},
		"behind several":          {200, at(180), Cut{}, Checkpoint{LSN: 200, Landmark: at(180)}},
		"idle before its message": {110, at(90), Cut{}, Checkpoint{LSN: 110, Landmark: at(90), Cut: Cut{at(120), 5}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := begin.Reached(tt.lsn, tt.landmark, tt.cut); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestReplacesComparesPlacesInATransaction(t *testing.T) {
	in := func(epoch int64, lsn pg.LSN, seq uint32) *Checkpoint {
		return &Checkpoint{Epoch: epoch, LSN: lsn, Cut: Cut{Landmark{Commit: 200}, seq}}
	}
	for _, tt := range []struct {
		next, old *Checkpoint
		want      bool
	}{
		{in(1, 100, 5), in(1, 100, 4), true},
		{in(1, 100, 4), in(1, 100, 5), false},
		{in(1, 100, 5), in(1, 100, 5), true},
		{&Checkpoint{Epoch: 1, LSN: 100}, in(1, 100, 5), false},
		{&Checkpoint{Epoch: 1, LSN: 210}, in(1, 100, 5), true},
		{&Checkpoint{Epoch: 2, LSN: 100}, in(1, 100, 5), true},
	} {
		if got := tt.next.Replaces(tt.old); got != tt.want {
			t.Errorf("%+v replaces %+v: %t", tt.next, tt.old, got)
		}
	}
}

// TestAfterIsThePositionToCome compares After before records are done with Position
// afterwards.
func TestAfterIsThePositionToCome(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := NewTracker(1)
		var records []Ticket // not done, in order
		end := pg.LSN(1)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				records = append(records, tr.Add())
			case 2:
				end += 10
				if err := tr.Seal(end, Landmark{Commit: end - 1, XID: uint32(end)}); err != nil {
					t.Fatal(err)
				}
			case 3:
				end += 10
				if err := tr.Keepalive(end); err != nil {
					t.Fatal(err)
				}
			}
			if len(records) == 0 || rapid.Bool().Draw(t, "wait") {
				continue
			}
			n := rapid.IntRange(1, len(records)).Draw(t, "done")
			last, of := records[n-1], 0
			for _, k := range records[:n] {
				if k == last {
					of++
				}
			}
			position, landmark, whole := tr.After(last, of)
			for _, k := range records[:n] {
				tr.Done(k, 1)
			}
			records = records[n:]
			if tr.Position() != position || tr.Landmark() != landmark {
				t.Fatalf("After = %v, %v, then %v, %v", position, landmark, tr.Position(), tr.Landmark())
			}
			if rest := len(records) > 0 && records[0] == last || tr.open && tr.next-1 == last; whole == rest {
				t.Fatalf("After says that transaction %d is whole: %t", last, whole)
			}
		}
	})
}
