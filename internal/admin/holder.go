package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// refuseSlot returns an error if the slot must not be dropped: as somebody
// else's, or in use by the holder in the error.
func refuseSlot(ctx context.Context, conn *pgx.Conn, slot catalog.Slot, database string) error {
	unfit := slot.Unfit(database)
	if !slot.Active {
		return unfit
	}
	holder, err := catalog.ReadHolder(ctx, conn, slot.ActivePID)
	if err != nil {
		return errors.Join(unfit, err)
	}
	if unfit != nil {
		return fmt.Errorf("%w; it is in use by %s", unfit, holder)
	}
	return failure.Configf("stop the connector first",
		"slot %q is in use by %s", slot.Name, holder)
}
