package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// acceptGap notes a gap in the checkpoint, as an operator does while nothing runs.
func (d *database) acceptGap(id string, change func(*checkpoint.Checkpoint)) {
	d.t.Helper()
	cp := d.store.stored()
	cp.Epoch++
	cp.Accepted = &checkpoint.AcceptedGap{ID: id, From: 7, To: cp.LSN, Accepted: time.Now().Add(-time.Hour)}
	change(&cp)
	must.OK(d.t, d.store.Save(d.t.Context(), cp))
}

func unchanged(*checkpoint.Checkpoint) {}

func (d *database) mend(m checkpoint.Mending) {
	d.t.Helper()
	must.OK(d.t, catalog.EmitNotice(d.t.Context(), d.conn, must.Get(json.Marshal(m))(d.t)))
}

// gap is the gap in the store.
func (d *database) gap() *checkpoint.AcceptedGap { return d.store.stored().Accepted }

func (d *database) rows() string { d.t.Helper(); return d.text("SELECT count(*)::text FROM outbox") }

// Failure mode 207: retention takes nothing while an accepted gap is noted, and goes on once a
// repair has closed the gap. Messages of others change nothing.
func TestAnAcceptedGapHoldsRetention(t *testing.T) {
	d := retained(t)
	i := d.run().streams()
	d.publish(3, 1)
	eventually(t, "the delivered rows to go", func() bool { return d.rows() == "0" })
	i.stop()
	d.acceptGap("g", unchanged)

	i = d.run().streams()
	d.publish(4, 2)
	d.mend(checkpoint.Mending{Slot: d.opts.Slot, Gap: "another"})
	d.mend(checkpoint.Mending{Slot: d.opts.Slot})
	d.mend(checkpoint.Mending{Slot: "another", Gap: "g"})
	must.OK(t, catalog.EmitNotice(t.Context(), d.conn, []byte("no JSON")))
	d.exec(fmt.Sprintf(`SELECT pg_logical_emit_message(false, 'cdc-outbox', '{"slot":"%s","gap":"g"}')`, d.opts.Slot)) // may be of a transaction rolled back
	d.exec(fmt.Sprintf(`SELECT pg_logical_emit_message(true, 'other', '{"slot":"%s","gap":"g"}')`, d.opts.Slot))
	d.publish(1, 1)
	for range 3 { // retention looks each millisecond
		d.pastNow(i)
	}
	if got := d.rows(); got != "5" {
		t.Errorf("%s rows are left while a gap is noted, want all 5", got)
	}
	if st := i.status().Gap; st == nil || st.From != "0/7" || i.health.gapAge() < time.Hour {
		t.Errorf("the status says %+v, of %s", st, i.health.gapAge())
	}

	d.mend(checkpoint.Mending{Slot: d.opts.Slot, Gap: "g"})
	eventually(t, "the gap to be forgotten", func() bool { return d.gap() == nil })
	eventually(t, "the rows to go", func() bool { return d.rows() == "0" })
	if st := i.status().Gap; st != nil || i.health.gapAge() != 0 {
		t.Errorf("the status says %+v, of %s", st, i.health.gapAge())
	}
	i.stop()
	i = d.run().streams()
	d.publish(1, 1)
	eventually(t, "the row to go", func() bool { return d.rows() == "0" })
	d.finish(i)
}

// The message comes again until a checkpoint from behind the message is saved; such a
// checkpoint has no gap.
func TestAMendingIsNotLost(t *testing.T) {
	for name, interrupt := range map[string]func(*database, *instance) *instance{
		"the instance stops":          func(d *database, i *instance) *instance { i.stop(); return d.run().streams() },
		"the connection breaks":       func(d *database, i *instance) *instance { d.kill(); return i },
		"nobody reads at the message": nil,
	} {
		t.Run(name, func(t *testing.T) {
			d := sharedDatabase(t)
			i := d.run().streams()
			d.publish(1, 1)
			i.stop()
			d.acceptGap("g", unchanged)
			mending := checkpoint.Mending{Slot: d.opts.Slot, Gap: "g"}
			if interrupt == nil {
				d.mend(mending)
				d.insert(1, 1)
				i = d.run().streams()
			} else {
				i = d.run().streams()
				refused := make(chan struct{}, 1)
				d.store.hook(func(_ context.Context, cp checkpoint.Checkpoint) error {
					if cp.Accepted == nil {
						select {
						case refused <- struct{}{}:
						default:
						}
						return errors.New("the store is down")
					}
					return nil
				})
				d.mend(mending)
				<-refused
				if d.gap() == nil {
					t.Fatal("the gap is forgotten already")
				}
				i = interrupt(d, i)
				d.store.hook(nil)
			}
			eventually(t, "the gap to be forgotten", func() bool { return d.gap() == nil })
			d.publish(1, 1)
			d.finish(i)
		})
	}
}

// A snapshot of all rows has those of the gap.
func TestASnapshotEndsAnAcceptedGap(t *testing.T) {
	d := sharedDatabase(t)
	i := d.run().streams()
	d.publish(2, 1)
	i.stop()
	d.acceptGap("g", func(cp *checkpoint.Checkpoint) { cp.Snapshot = true })
	i = d.run().streams()
	eventually(t, "the gap to be forgotten", func() bool { return d.gap() == nil })
	i.stop()
	if ids := d.topic.ids(); len(ids) != 4 {
		t.Errorf("%v, want both events twice", ids)
	}
}

// A repair of a later loss compares later rows only.
func TestARepairOfALossKeepsAnAcceptedGap(t *testing.T) {
	d, r := lossy(t)
	d.acceptGap("g", unchanged)
	d.dropSlot()
	i := d.repairing(r).streams()
	d.wantsOnce()
	if gap := d.gap(); gap == nil || gap.ID != "g" || gap.To.String() == "0/0" {
		t.Errorf("the gap is %+v", gap)
	}
	d.mend(checkpoint.Mending{Slot: d.opts.Slot, Gap: "g"})
	eventually(t, "the gap to be forgotten", func() bool { return d.gap() == nil })
	i.stop()
}
