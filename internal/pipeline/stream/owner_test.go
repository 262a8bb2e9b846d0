package stream

import (
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// Failure mode 63: the key has the checkpoint of another connector. Neither a start nor a
// spare takes anything over, and a slot is not made.
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

// A note of a slot's creation, by a connector of another server with the same names.
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

// Failure mode 65: an instance stands by while another program reads the slot, and drops
// the slot at its stop. A new slot would leave out everything committed in between.
func TestSlotDroppedByItsFormerReader(t *testing.T) {
	for name, creates := range map[string]bool{"source.create: true": true, "source.create: false": false} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			other := d.start(&fakeStore{}, &gate{topic: &topic{}}).streams()
			d.insert(1, 1)
			p, behind := behindProxy(t, d)
			behind.opts.Create = creates
			i := behind.start(&fakeStore{}, d.gate).standsBy()
			eventually(t, "a look at the slot", func() bool { return i.status().Holder != nil })
			if s := i.status(); s.ReceivedLSN != "" || s.ConfirmedLSN != "" {
				t.Errorf("positions of a slot that another one reads: %q, %q", s.ReceivedLSN, s.ConfirmedLSN)
			}
			p.Refuse(true)
			p.Cut()
			other.stop()
			eventually(t, "the slot to be free", func() bool { return d.walsender() == 0 })
			d.exec("SELECT pg_drop_replication_slot('" + d.opts.Slot + "')")
			d.insert(1, 1)
			p.Refuse(false)
			i.wantEnd(failure.Loss, "is gone: another process read it while this one stood by")
			d.wantNoSlot()
		})
	}
}

// A dropped slot of setup's is a loss, even with a snapshot asked for.
func TestMadeSlotDroppedBeforeTheSnapshot(t *testing.T) {
	d := outbox(t)
	d.run().streams().stop()
	made := d.store.stored()
	made.Made, made.Epoch = true, 1
	d.store.cp = &made
	d.exec("SELECT pg_drop_replication_slot('" + d.opts.Slot + "')")
	d.opts.Snapshot = true
	d.run().wantEnd(failure.Loss, "is gone, but was made by setup")
	d.wantNoSlot()
}

// An adopted slot, with a checkpoint behind, or lost.
func TestAdoptedSlot(t *testing.T) {
	for name, dropped := range map[string]bool{"moved on": false, "dropped": true} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			other := &fakeStore{}
			first := d.start(other, &gate{topic: &topic{}}).streams()
			adopted := other.stored()
			adopted.Adopted, adopted.Epoch = true, 1
			d.store.cp = &adopted
			d.exec(`INSERT INTO outbox VALUES ('theirs', 'order', 'o', 'Placed', '{}')`)
			mark := d.lsn(`SELECT pg_current_wal_flush_lsn()::text`)
			eventually(t, "the slot to move on", func() bool { return d.confirmed() >= mark })
			first.stop()
			eventually(t, "the slot to be free", func() bool { return d.walsender() == 0 })
			if dropped {
				d.exec("SELECT pg_drop_replication_slot('" + d.opts.Slot + "')")
				d.run().wantEnd(failure.Loss, "is gone")
				d.wantNoSlot()
				return
			}
			d.insert(2, 1)
			i := d.run().streams()
			d.arrive()
			if d.store.stored().Adopted {
				t.Error("our own checkpoint is an adopted one")
			}
			d.finish(i)
		})
	}
}

// Failure mode 182: the checkpoint is gone, and the slot is not. No event is lost, and the
// next start says that nobody can tell of earlier losses.
func TestCheckpointThatVanished(t *testing.T) {
	d := outbox(t)
	const vanished, first = "no checkpoint of it is there", "there is no checkpoint yet"
	d.exec(`CREATE PUBLICATION cdc_outbox FOR TABLE outbox`)
	d.exec(`SELECT pg_create_logical_replication_slot('` + d.opts.Slot + `', 'pgoutput')`)
	i := d.run().streams()
	d.publish(1, 1)
	i.stop()
	if i.says(first) != 1 || i.says(vanished) != 0 {
		t.Error("the first start takes the slot for one that was read before")
	}
	pgtest.Await(t, d.conn, `SELECT total_txns > 0 FROM pg_stat_replication_slots WHERE slot_name = $1`, d.opts.Slot)
	d.store.cp = nil
	d.insert(1, 1)
	i = d.run().streams()
	d.arrive()
	if i.says(vanished) != 1 {
		t.Error("the start does not say that the checkpoint is gone")
	}
	d.finish(i)
}

// says counts the lines of the log with a text.
func (i *instance) says(text string) (n int) {
	for _, e := range i.logs.All() {
		if strings.Contains(e.Message, text) {
			n++
		}
	}
	return n
}
