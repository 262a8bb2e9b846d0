package checkpoint

import (
	"errors"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Owner is the connector of a checkpoint. Positions of another slot say nothing about the
// owner's slot, and positions of another database nothing about the log.
type Owner struct{ SystemID, Database, Slot string }

// Owner is the owner of checkpoint c.
func (c *Checkpoint) Owner() Owner { return Owner{c.SystemID, c.Database, c.Slot} }

// ErrOtherSlot is wrapped by the error of a checkpoint of another slot.
var ErrOtherSlot = errors.New("it is the checkpoint of another connector")

// OfSlot returns why c is no checkpoint of the slot, if so. c is the store's
// content under the key. Nothing in c counts before.
func (c *Checkpoint) OfSlot(slot, key string) error {
	if c.Slot == slot {
		return nil
	}
	return failure.Configf(
		"give each connector a checkpoint.key of its own (by default it has the slot's name), or correct source.slot; a connector with a new key goes on from where its slot stands",
		"the checkpoint under the key %q is of slot %q, and source.slot is %q: %w", key, c.Slot, slot, ErrOtherSlot)
}

// Belongs returns why c, perhaps a Beginning, does not belong to the server's log.
func (c *Checkpoint) Belongs(seen *Server) error {
	if err := c.OfSlot(seen.Name, seen.Key); err != nil {
		return err
	}
	return sameDatabase(c, seen)
}
