package stream

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
)

// Failure mode 63: under the key is the checkpoint of another connector. Neither a
// start nor a spare takes anything from it, and a slot is not made.
func TestCheckpointOfAnotherSlot(t *testing.T) {
	const text = `under the key "shared" is of slot "other", and source.slot is "slot_`
	for name, slot := range map[string]string{"without a slot": "missing", "with a slot": "free", "as a spare": "held"} {
		for begun, creating := range map[string]bool{"": false, ", just beginning": true} {
			t.Run(name+begun, func(t *testing.T) {
				d := outbox(t)
				d.opts.Checkpoint.Key = "shared"
				d.limits.spareLook = 0
				if slot != "missing" {
					holder := d.start(&fakeStore{}, d.gate).streams()
					d.publish(1, 1)
					if slot == "free" {
						holder.stop()
						d.insert(1, 1)
					}
				}
				cp := checkpoint.Checkpoint{LSN: d.lsn(`SELECT pg_current_wal_lsn()::text`), SystemID: "1", Slot: "other", Database: "other", Epoch: 7, Creating: creating}
				d.store.cp = &cp
				d.run().wantEnd(failure.Config, text)
				if len(d.store.saved) > 0 {
					t.Errorf("saved %+v over the other connector's checkpoint", d.store.saved)
				}
				if slot == "missing" {
					d.wantNoSlot()
				}
			})
		}
	}
}

// A note that a slot is being created, by a connector of another server that has the
// same names.
func TestBeginningOfAnotherServer(t *testing.T) {
	for name, there := range map[string]bool{"without a slot": false, "with a slot": true} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			d.opts.Snapshot = true
			d.exec(`CREATE PUBLICATION cdc_outbox FOR TABLE outbox`)
			if there {
				must.Get(d.conn.Exec(t.Context(), `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, d.opts.Slot))(t)
			}
			cp := checkpoint.Checkpoint{LSN: 1, SystemID: "1", Slot: d.opts.Slot, Database: d.text(`SELECT current_database()`), Epoch: 1, Creating: true, Snapshot: true}
			d.store.cp = &cp
			d.run().wantEnd(failure.Loss, "wrong database cluster")
			if !there {
				d.wantNoSlot()
			}
		})
	}
}
