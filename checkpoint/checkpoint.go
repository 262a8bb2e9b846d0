// Package checkpoint turns acknowledgements into one position that is safe to
// confirm, and keeps that position durable beside the replication slot.
package checkpoint

import (
	"context"
	"time"

	"github.com/cdc-outbox/cdc-outbox/wal"
)

// Checkpoint is what is known for certain about a connector's progress, and
// what it was reading, so that another database, a recreated slot or a rebuilt
// publication is noticed.
type Checkpoint struct {
	LSN         wal.LSN   `json:"lsn"` // everything that ends at or before it is acked
	SystemID    string    `json:"system_id"`
	Timeline    int32     `json:"timeline"`
	Database    string    `json:"database"`
	Slot        string    `json:"slot"`
	Publication string    `json:"publication"` // wal.Publication.Fingerprint
	SavedAt     time.Time `json:"saved_at"`
	// Snapshot is set while the first start's snapshot is being published.
	Snapshot bool `json:"snapshot,omitempty"`
}

// Store keeps the checkpoint of one connector. Its methods are called from one
// goroutine at a time.
type Store interface {
	// Load returns the last checkpoint saved; ok is false where there is none.
	Load(ctx context.Context) (cp Checkpoint, ok bool, err error)
	// Save returns once the checkpoint is durable.
	Save(ctx context.Context, cp Checkpoint) error
	Close()
}
