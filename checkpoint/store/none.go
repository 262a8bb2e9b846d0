package store

import (
	"context"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
)

// none keeps nothing. There is only the slot's own confirmed position, and
// nobody notices a slot that was recreated or advanced.
type none struct{}

func (none) Load(context.Context) (checkpoint.Checkpoint, bool, error) {
	return checkpoint.Checkpoint{}, false, nil
}
func (none) Save(context.Context, checkpoint.Checkpoint) error { return nil }
func (none) Close()                                            {}
