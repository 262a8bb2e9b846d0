package admin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// awaitedStandbys looks for absent standbys the server waits for before sending
// anything of the slot.
func (d *doctor) awaitedStandbys(ctx context.Context) {
	const name = "postgresql.synchronized_standby_slots"
	if d.server.Major() < 17 || d.slot != nil && !d.slot.Failover {
		return
	}
	wait, err := catalog.ReadStandbySlots(ctx, d.conn)
	if err == nil && wait.Away() != "" {
		err = awaited(wait)
	}
	if err == nil && d.slot != nil {
		err = heldBack(ctx, d.conn, *d.slot)
	}
	switch {
	case err != nil:
		d.fail(name, err)
	case len(wait.Slots) > 0:
		d.ok(name, "each of %d is read by its standby", len(wait.Slots))
	}
}

// awaited is the error of an absent standby. The error passes with the standby's
// return.
func awaited(wait catalog.StandbyWait) error {
	return &failure.Error{Class: failure.Transient, Remedy: wait.Remedy(), Err: fmt.Errorf("nothing gets through: %s", wait)}
}

// awaitedNow is the error of a slot for which the server sends nothing at
// present, because of its creation or an absent standby; nil for any other.
func awaitedNow(ctx context.Context, conn *pgx.Conn, slot catalog.Slot) error {
	if slot.Creating() {
		return beingCreated(ctx, conn, slot)
	}
	return heldBack(ctx, conn, slot)
}

// betweenStandbyLooks is the time for a standby to come on.
const betweenStandbyLooks = time.Second

// heldBack is the error of a slot waiting for a standby that is absent, or stands
// still; nil for any other. A standby in sync is often waited for, for a moment.
func heldBack(ctx context.Context, conn *pgx.Conn, slot catalog.Slot) error {
	wait, err := catalog.ReadStandbyWait(ctx, conn, slot)
	if err != nil || !wait.Waiting {
		return err
	}
	if wait.Away() != "" {
		return awaited(wait)
	}
	if err := backoff.Sleep(ctx, betweenStandbyLooks); err != nil {
		return err
	}
	again, err := catalog.ReadStandbyWait(ctx, conn, slot)
	if err != nil || !again.Same(wait) {
		return err
	}
	return awaited(again)
}

// pendingRestart looks for settings due at the server's next start: with some
// the server would not start while the slot exists (slot.c, xlogrecovery.c).
func (d *doctor) pendingRestart(ctx context.Context) {
	const name = "postgresql.pending_restart"
	pending, err := catalog.PendingRestart(ctx, d.conn)
	switch {
	case err != nil:
		d.fail(name, err)
	case len(pending) > 0:
		d.warn(name, "see what the next start will have: SELECT name, setting, applied, error FROM pg_file_settings WHERE name IN ('wal_level', 'max_replication_slots', 'max_wal_senders'); "+
			"while a logical slot exists, wal_level must stay logical, and max_replication_slots at least the number of slots, or the server does not start",
			"changed in the configuration, and waiting for a restart: %s", strings.Join(pending, ", "))
	default:
		d.ok(name, "no change of wal_level, slots or senders waits for a restart")
	}
}
