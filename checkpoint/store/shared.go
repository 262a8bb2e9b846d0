package store

import (
	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// ShareRemedy says what to do so that all instances of one connector see the
// same checkpoint.
func ShareRemedy(cfg Options) string {
	if cfg.Store == StoreFile {
		return "instances on several machines must see one file: put checkpoint.path (" + cfg.Path + ") on storage that they share, " +
			"or set checkpoint.store to kafka or postgres on all of them"
	}
	return "give all instances of the connector the same checkpoint.store, with the same topic or table, and checkpoint.key"
}

// OwnFile adds another possible reason to a loss that Verify found, where the
// checkpoint is in a file: an instance on another machine, with a file of its
// own, has read the slot.
func OwnFile(err error, cfg Options, stored *checkpoint.Checkpoint, slot catalog.Slot) error {
	if cfg.Store != StoreFile || failure.ClassOf(err) != failure.Loss || stored == nil || slot.ConfirmedFlush <= stored.LSN {
		return err
	}
	return failure.Lossf("if an instance on another machine read the slot meanwhile, nothing is missing: copy its checkpoint file here; "+ShareRemedy(cfg)+
		". Otherwise "+failure.RemedyOf(err),
		"%w; or it was read by an instance on another machine that keeps its checkpoint in a file of its own, and %s is old", err, cfg.Path)
}
