package checkpoint

import (
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// Beginning is saved before a slot is created, if a snapshot has to be
// published. It is no checkpoint yet. It says that nobody has read the slot.
// The first checkpoint takes its place. Without it, a slot that nobody has read
// and a slot whose checkpoint was lost would look the same.
func Beginning(server catalog.Server, slot string) Checkpoint {
	return Checkpoint{
		LSN:      server.FlushLSN,
		SystemID: server.SystemID,
		Timeline: server.Timeline,
		Database: server.Database,
		Slot:     slot,
		SavedAt:  time.Now().UTC(),
		Epoch:    1,
		Snapshot: true,
		Creating: true,
	}
}

// Undecided is the error of a slot where a snapshot is asked for, and nothing
// tells whether it was published already.
func Undecided(slot catalog.Slot) error {
	return failure.Configf(
		"set source.snapshot to never to read the slot on from there; "+
			"or publish what is in the outbox table first, again or for the first time: `cdc-outbox setup --accept-gap --snapshot --yes`; "+
			"or, if the checkpoint is under another checkpoint.key or in another store, name that",
		"source.snapshot is initial, and slot %q exists, confirmed up to %s, but there is no checkpoint: "+
			"it was lost or is looked for in the wrong place, or somebody else created the slot. Whether the rows in the outbox table were published is not known",
		slot.Name, slot.ConfirmedFlush)
}
