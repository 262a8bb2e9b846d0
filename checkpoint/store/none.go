package store

import (
	"context"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
)

// none keeps nothing: the slot's own confirmed position is all there is, and a
// slot that was recreated or advanced goes unnoticed.
type none struct{}

func (none) Load(context.Context) (checkpoint.Checkpoint, bool, error) {
	return checkpoint.Checkpoint{}, false, nil
}
func (none) Save(context.Context, checkpoint.Checkpoint) error { return nil }
func (none) Close()                                            {}
