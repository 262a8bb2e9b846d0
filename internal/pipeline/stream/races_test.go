package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// heldStore is a single instance's way to a store, with doors before and after a load, and
// before a save. Only the test opens them.
type heldStore struct {
	checkpoint.Store
	load, loaded, save door
}

func (s *heldStore) Load(ctx context.Context) (checkpoint.Checkpoint, bool, error) {
	stay := context.WithoutCancel(ctx)
	_ = s.load.pass(stay)
	cp, ok, err := s.Store.Load(ctx)
	_ = s.loaded.pass(stay)
	return cp, ok, err
}

func (s *heldStore) Save(ctx context.Context, cp checkpoint.Checkpoint) error {
	_ = s.save.pass(context.WithoutCancel(ctx))
	return s.Store.Save(ctx, cp)
}

// An instance finds no slot, and then the checkpoint of another instance that created the
// slot in between. The first must not take the slot for dropped.
func TestFirstStartOfAnotherWhileLooking(t *testing.T) {
	d := outbox(t)
	held := &heldStore{Store: d.store}
	held.load.hold()
	spare := d.start(held, &gate{topic: d.topic})
	held.load.reached(t)
	other := d.run().streams()
	held.load.open()
	spare.standsBy()
	d.publish(5, 1)
	other.stop()
	spare.streams()
	d.publish(5, 1)
	d.finish(spare)
}

// Between the look at the checkpoint and the stream, another instance holds the
// slot and goes on. Earlier observations do not count then.
func TestE2ESlotWasHeldByAnotherWhileTakingOver(t *testing.T) {
	d := outbox(t)
	d.run().streams().stop()
	held := &heldStore{Store: d.store}
	held.loaded.hold()
	late := d.start(held, &gate{topic: d.topic})
	held.loaded.reached(t)
	other := d.run().streams()
	d.publish(5, 1)
	other.stop()
	held.loaded.open()
	late.streams()
	d.publish(1, 1)
	d.finish(late)
	if got := d.store.positions(); !slices.IsSorted(got) {
		t.Errorf("the checkpoint went back: %v", got)
	}
}

// Between the look at the slot and the stream, the last confirmation of the former holder
// arrives; its checkpoint was saved before. The server then leaves out the transaction to
// recognise the log by.
func TestE2ELastConfirmationArrivesWhileTakingOver(t *testing.T) {
	d := outbox(t)
	d.run().streams().stop()
	p, behind := behindProxy(t, d)
	saves := &heldStore{Store: d.store}
	old := behind.start(saves, &gate{topic: d.topic}).streams()
	before := d.confirmed()
	saves.save.hold()
	d.insert(1, 1)
	saves.save.reached(t)
	p.Refuse(true)
	p.Cut() // so that the instance saves, and cannot confirm
	saves.save.open()
	eventually(t, "the checkpoint", func() bool { return d.store.stored().LSN > before })
	old.stop()
	if now := d.confirmed(); now != before {
		t.Fatalf("the slot went from %s to %s", before, now)
	}

	looks := &heldStore{Store: d.store}
	looks.loaded.hold()
	late := d.start(looks, &gate{topic: d.topic})
	looks.loaded.reached(t)
	d.exec(fmt.Sprintf("SELECT pg_replication_slot_advance('%s', '%s')", d.opts.Slot, d.store.stored().LSN))
	looks.loaded.open()
	late.streams()
	d.publish(1, 1)
	d.finish(late)
}

// As before, but without a checkpoint, neither yet nor from the holder in between.
func TestSlotWasReadByAnotherWhileAdopting(t *testing.T) {
	d := outbox(t)
	d.exec("CREATE PUBLICATION cdc_outbox FOR TABLE outbox")
	d.exec("SELECT pg_create_logical_replication_slot('" + d.opts.Slot + "', 'pgoutput')")
	held := &heldStore{Store: d.store}
	held.loaded.hold()
	late := d.start(held, &gate{topic: d.topic})
	held.loaded.reached(t)
	other := d.start(&fakeStore{forget: true}, &gate{topic: d.topic}).streams()
	d.publish(5, 1)
	other.stop()
	passed := d.confirmed()
	held.loaded.open()
	late.streams()
	d.publish(1, 1)
	d.finish(late)
	if got := d.store.positions(); got[0] < passed {
		t.Errorf("the first checkpoint is at %s, before the slot's position %s", got[0], passed)
	}
}

// A holder stalled by its sink sees neither the end of its connection nor another
// instance going on: to its monitor the slot moves by itself.
func TestE2EStalledHolderWhoseSlotIsTaken(t *testing.T) {
	d := outbox(t)
	d.opts.MaxBufferedBytes = 20_000
	stalled := &gate{topic: d.topic}
	old := d.start(d.store, stalled).streams()
	d.publish(1, 1)
	stalled.hold()
	d.insert(200, 20)
	old.full()
	d.exec("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '" + d.opts.Slot + "'")
	spare := d.run().streams()
	d.arrive()
	if err := old.wait(); !errors.Is(err, ErrTakenOver) || failure.ClassOf(err) != failure.Transient {
		t.Errorf("the old holder's Run = %v, want it to start over", err)
	}
	d.finish(spare)
}

// The slot is held while the snapshot is published. Otherwise a spare would publish the
// snapshot, too.
func TestSpareStandsByDuringTheFirstSnapshot(t *testing.T) {
	d := outbox(t)
	d.opts.Snapshot = true
	d.insert(50, 50)
	slow := &gate{topic: d.topic}
	slow.hold()
	first := d.start(d.store, slow)
	slow.waits(t)
	spare := d.run().standsBy()
	d.insert(5, 1)
	slow.open()
	d.arrive()
	first.stop()
	spare.streams().stop()
	d.wantOnce()
}

// The first checkpoint of a holder reaches the store after another instance has gone on
// without it.
func TestLateFirstCheckpointDoesNotSetTheNextHolderBack(t *testing.T) {
	d := outbox(t)
	held := &heldStore{Store: d.store}
	held.save.hold()
	p, behind := behindProxy(t, d)
	late := behind.start(held, &gate{topic: d.topic})
	held.save.reached(t)
	p.Refuse(true)
	p.Cut()
	next := d.run().streams()
	d.publish(5, 1)
	next.stop()
	taken := d.store.stored()
	held.save.open()
	eventually(t, "the late save", func() bool { return late.health.confirmed() != 0 })
	if got := d.store.stored(); got.LSN < taken.LSN {
		t.Errorf("the checkpoint went from %s to %s", taken.LSN, got.LSN)
	}
	d.run().streams().stop()
	d.wantOnce()
}
