package stream

import (
	"slices"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// recalled is an intake going on from a checkpoint at 15, within the transaction at 20
// behind change 1.
func recalled(t *testing.T) *intake {
	t.Helper()
	in, _ := testIntake(t, transform.UpdateWarn)
	must.OK(t, in.tracker.Keepalive(15))
	past := checkpoint.Past{Slot: 5, Start: 10, Known: 15, Since: checkpoint.Landmark{Commit: 10, XID: 10}}
	past.Cut = checkpoint.Cut{Landmark: checkpoint.Landmark{Commit: 20, XID: 20}, Seq: 1}
	must.OK(t, in.resume(past))
	return in
}

func TestIntakeGoesOnWithinATransaction(t *testing.T) {
	in := recalled(t)
	got := accepted(t, in, insert(10, 0), commit(15), insert(20, 0), insert(20, 1), insert(20, 2), commit(25), insert(30, 0), commit(35))
	if want := []string{"20/2", "30/0"}; !slices.Equal(got, want) || in.reading.End() != 35 {
		t.Errorf("took in %v up to %s, want %v up to 35", got, in.reading.End(), want)
	}
}

func TestIntakeGoesOnBehindATransactionThatHasNoMore(t *testing.T) {
	in := recalled(t)
	got := accepted(t, in, insert(10, 0), commit(15), insert(20, 0), insert(20, 1), commit(25))
	if len(got) > 0 || in.reading.End() != 25 || in.tracker.Position() != 25 {
		t.Errorf("took in %v up to %s, position %s, want nothing up to 25", got, in.reading.End(), in.tracker.Position())
	}
}

// Without the event, nobody knows where to go on.
func TestIntakeRefusesATransactionWithoutThePlace(t *testing.T) {
	for name, messages := range map[string][]*wal.Message{
		"one behind it": {insert(10, 0), commit(15), insert(20, 0), insert(20, 2)},
		"its end":       {insert(10, 0), commit(15), insert(20, 0), commit(25)},
	} {
		t.Run(name, func(t *testing.T) {
			in := recalled(t)
			last := len(messages) - 1
			accepted(t, in, messages[:last]...)
			if err := in.accept(t.Context(), messages[last]); failure.ClassOf(err) != failure.Loss {
				t.Errorf("accept = %v, want a loss", err)
			}
		})
	}
}

// The checkpoint of the next items in order.
func TestReached(t *testing.T) {
	at := func(lsn pg.LSN) checkpoint.Landmark { return checkpoint.Landmark{Commit: lsn, XID: uint32(lsn)} }
	for name, tt := range map[string]struct {
		messages []*wal.Message
		n        int
		lsn      pg.LSN
		landmark checkpoint.Landmark
		cut      checkpoint.Cut
	}{
		"a whole transaction":             {[]*wal.Message{insert(10, 0), insert(10, 1), commit(15), insert(20, 0)}, 2, 15, at(10), checkpoint.Cut{}},
		"a part of one":                   {[]*wal.Message{insert(10, 0), insert(10, 1), commit(15)}, 1, 0, checkpoint.Landmark{}, checkpoint.Cut{Landmark: at(10), Seq: 0}},
		"all of one whose end is to come": {[]*wal.Message{insert(10, 0), insert(10, 3)}, 2, 0, checkpoint.Landmark{}, checkpoint.Cut{Landmark: at(10), Seq: 3}},
		"one and a part of the next":      {[]*wal.Message{insert(10, 0), commit(15), insert(20, 0), insert(20, 1), commit(25)}, 2, 15, at(10), checkpoint.Cut{Landmark: at(20), Seq: 0}},
		"with what was empty behind it":   {[]*wal.Message{insert(10, 0), commit(15), idle(40)}, 1, 40, at(10), checkpoint.Cut{}},
		"a message of no transaction":     {[]*wal.Message{loose(20)}, 1, 20, checkpoint.Landmark{}, checkpoint.Cut{}},
	} {
		t.Run(name, func(t *testing.T) {
			in, _ := testIntake(t, transform.UpdateWarn)
			for _, m := range tt.messages {
				must.OK(t, in.accept(t.Context(), m))
			}
			d := &deliverer{tracker: in.tracker}
			lsn, landmark, cut := d.reached(in.queue.take(nil)[:tt.n])
			landmark.Time, cut.Time = time.Time{}, time.Time{}
			if lsn != tt.lsn || landmark != tt.landmark || cut != tt.cut {
				t.Errorf("got %s, %v, %v, want %s, %v, %v", lsn, landmark, cut, tt.lsn, tt.landmark, tt.cut)
			}
		})
	}
}
