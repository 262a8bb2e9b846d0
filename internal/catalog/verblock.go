package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// RepairVerb is the verb for missing events.
const RepairVerb = "repair"

// LockVerb locks out a second process with the verb for the slot's pipeline, until the connection ends. alone is false if another process has the lock.
func LockVerb(ctx context.Context, conn *pgx.Conn, verb, slot string) (alone bool, err error) {
	err = conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(hashtext('cdc-outbox ' || $2), hashtext($1))`, slot, verb).Scan(&alone)
	if err != nil {
		return false, fmt.Errorf("lock out a second %s: %w", verb, err)
	}
	return alone, nil
}
