package stream

import (
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/role"
)

// Two instances with a checkpoint file on each machine: the spare would take
// over without the holder's checkpoint, or with an old one, and then tell of a
// loss. It finds out while it stands by.
func TestSpareWhoseHolderSavesElsewhere(t *testing.T) {
	for name, old := range map[string]bool{"no checkpoint here": false, "an old one here": true} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			d.opts.Checkpoint.Store, d.opts.Checkpoint.Path = store.StoreFile, "/var/lib/cdc-outbox/checkpoint"
			d.limits.elsewhereLook, d.limits.elsewhere = time.Millisecond, time.Millisecond
			here, there, to := &fakeStore{}, &fakeStore{}, &topic{}
			if old {
				d.start(here, &gate{topic: to}).streams().stop()
			}
			holder := d.start(there, &gate{topic: to}).streams()
			spare := d.start(here, &gate{topic: to}).standsBy()
			d.insert(1, 1)
			eventually(t, "the end of the spare", func() bool {
				d.insert(1, 1) // the slot moves on
				select {
				case <-spare.done:
					return true
				default:
					return false
				}
			})
			spare.wantEnd(failure.Config, "another instance, connected from .*, reads slot .* and saves its checkpoints where this one, on .*, does not see them")
			arrive(t, to, len(d.ids))
			holder.stop()
			wantOnce(t, to, d.ids)
		})
	}
}

// The holder saves before it confirms: no moment looks as if it saved elsewhere.
func TestSpareThatSharesTheStoreStandsBy(t *testing.T) {
	d := outbox(t)
	d.limits.elsewhereLook, d.limits.elsewhere = time.Nanosecond, 0
	holder := d.run()
	spare := d.run()
	eventually(t, "one of them to stream", func() bool { return holder.role() == role.Active || spare.role() == role.Active })
	for range 60 {
		d.publish(1, 1)
	}
	if spare.role() == role.Active {
		holder, spare = spare, holder
	}
	holder.stop()
	spare.streams().stop()
	d.wantOnce()
}

// A spare that was down all the while cannot tell; the loss it finds names what
// else may be behind it.
func TestLossWithACheckpointFileOfItsOwn(t *testing.T) {
	d := outbox(t)
	d.opts.Checkpoint.Store, d.opts.Checkpoint.Path = store.StoreFile, "/var/lib/cdc-outbox/checkpoint"
	here, there, to := &fakeStore{}, &fakeStore{}, &topic{}
	d.start(here, &gate{topic: to}).streams().stop()
	other := d.start(there, &gate{topic: to}).streams()
	d.insert(5, 1)
	arrive(t, to, len(d.ids))
	other.stop()
	d.start(here, &gate{topic: to}).wantEnd(failure.Loss, "advanced or recreated .* an instance on another machine that keeps its checkpoint in a file of its own")
}
