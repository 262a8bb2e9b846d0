package rig

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// Limits of waiting, for slow and busy machines.
const (
	slotTimeout  = 2 * time.Minute
	backlogLimit = 20 * time.Minute
)

// CreateSlot makes a slot at the end of the log.
func (db *Database) CreateSlot(ctx context.Context, name string) error {
	_, err := db.Conn.Exec(ctx, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, name)
	return err
}

// CopySlot makes a slot where another is.
func (db *Database) CopySlot(ctx context.Context, from, name string) error {
	_, err := db.Conn.Exec(ctx, `SELECT pg_copy_logical_replication_slot($1, $2)`, from, name)
	return err
}

// Spilled is how many MiB of large transactions the slot's walsender has written to disk, as by
// pg_stat_replication_slots.
func (db *Database) Spilled(ctx context.Context, name string) (mib float64, err error) {
	err = db.Conn.QueryRow(ctx, `SELECT coalesce(sum(spill_bytes), 0)::float8 / (1 << 20) FROM pg_stat_replication_slots WHERE slot_name = $1`, name).Scan(&mib)
	return mib, err
}

// DropSlot drops the slot as soon as nobody streams from it.
func (db *Database) DropSlot(name string) error {
	ctx := context.Background()
	if err := db.AwaitActive(ctx, name, false, nobody); err != nil {
		return err
	}
	_, err := db.Conn.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, name)
	return err
}

func nobody(context.Context) error { return nil }

// AwaitActive returns when somebody streams from the slot, or nobody does. An error of
// alive ends the wait.
func (db *Database) AwaitActive(ctx context.Context, slot string, want bool, alive func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, slotTimeout, fmt.Errorf("slot %s is not active=%t after %s", slot, want, slotTimeout))
	defer cancel()
	return db.await(ctx, alive, `SELECT active = $2 FROM pg_replication_slots WHERE slot_name = $1`, slot, want)
}

// AwaitConfirmed returns when the slot's confirmed position has reached the end.
func (db *Database) AwaitConfirmed(ctx context.Context, slot, end string, alive func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, backlogLimit, fmt.Errorf("slot %s is not at %s after %s", slot, end, backlogLimit))
	defer cancel()
	return db.await(ctx, alive, `SELECT confirmed_flush_lsn >= $2::pg_lsn FROM pg_replication_slots WHERE slot_name = $1`, slot, end)
}

func (db *Database) await(ctx context.Context, alive func(context.Context) error, query string, args ...any) error {
	return Await(ctx, 10*time.Millisecond, func() (holds bool, err error) {
		if err = alive(ctx); err == nil {
			err = db.Conn.QueryRow(ctx, query, args...).Scan(&holds)
		}
		return holds, err
	})
}

// Await asks again and again, with pauses, until the answer is yes.
func Await(ctx context.Context, pause time.Duration, met func() (bool, error)) error {
	for {
		if ok, err := met(); ok || err != nil {
			return err
		}
		if err := backoff.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}
