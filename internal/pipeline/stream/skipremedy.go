package stream

import (
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// skipRemedy is the last of the ways past a refused transaction, as a further
// clause of the remedy. A checkpoint takes note of the transaction: without a
// checkpoint there is no such way.
func (o *Options) skipRemedy(at pg.LSN) string {
	if o.Checkpoint.Store == store.StoreNone {
		return ""
	}
	return fmt.Sprintf("; or leave out its whole transaction: `cdc-outbox setup --accept-gap --skip-to %s` lists the events of it, and leaves them out with --yes", at)
}
