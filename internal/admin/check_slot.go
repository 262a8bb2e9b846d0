package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// readSlot is silent; slotState reports. The checks between need to know
// whether the slot is there.
func (d *doctor) readSlot(ctx context.Context) {
	slot, ok, err := catalog.ReadSlot(ctx, d.conn, d.cfg.Source.Slot)
	if err != nil {
		d.fail("slot", err)
		return
	}
	d.slotKnown = true
	if ok {
		d.slot = &slot
	}
}

func (d *doctor) slotState(ctx context.Context) {
	const name = "slot"
	switch {
	case !d.slotKnown:
		return
	case d.slot == nil && d.server.InRecovery:
		d.skip(name, "the connector's slot is at the primary: see postgresql.primary")
		return
	case d.slot == nil && d.cfg.Source.Create:
		d.ok(name, "slot %q does not exist; run will create it on a first start", d.cfg.Source.Slot)
		return
	case d.slot == nil:
		d.fail(name, missingSlot(d.cfg))
		return
	}
	if d.slot.Synced && d.server.InRecovery { // a promoted standby's slots keep the mark
		d.fail(name, failure.Configf("connect to the primary", "slot %q is a standby's copy%s", d.slot.Name, notCopied(*d.slot)))
		return
	}
	if d.slot.Creating() {
		d.fail(name, beingCreated(ctx, d.conn, *d.slot))
		return
	}
	seen := checkpoint.Server{Name: d.slot.Name, Database: d.server.Database, CurrentLSN: d.server.FlushLSN, Exists: true, Slot: *d.slot}
	if _, err := checkpoint.Verify(nil, seen); err != nil {
		d.fail(name, err)
		return
	}
	holder := "nobody is reading it"
	if d.slot.Active {
		holder = fmt.Sprintf("pid %d is reading it", d.slot.ActivePID)
	}
	d.ok(name, "%s, confirmed up to %s", holder, d.slot.ConfirmedFlush)
	d.slotWAL()
}

// beingCreated is the error of a slot in creation, waiting for the named
// transactions. The error passes when they end.
func beingCreated(ctx context.Context, conn *pgx.Conn, slot catalog.Slot) error {
	text := fmt.Sprintf("slot %q is still being created by pid %d; what is committed before it is there is not published", slot.Name, slot.ActivePID)
	remedy := "wait until it is there"
	waits, err := catalog.ReadWaiting(ctx, conn, slot.ActivePID)
	if err == nil {
		text += "; it waits for " + waits.String()
	}
	if end := waits.Remedy(); end != "" {
		remedy += ", or end the transaction: " + end
	}
	return &failure.Error{Class: failure.Transient, Remedy: remedy, Err: errors.New(text)}
}

// notCopied tells why a standby's copy of the slot is not up to date, if known.
func notCopied(slot catalog.Slot) string {
	if slot.SyncSkipped == "" || slot.SyncSkipped == "none" {
		return ""
	}
	return ", which its last synchronisation did not bring up to date (" + slot.SyncSkipped + ")"
}

// patroni looks for a cluster manager dropping slots.
func (d *doctor) patroni(ctx context.Context) {
	const name = "postgresql.patroni"
	manages, err := catalog.Patroni(ctx, d.conn)
	failover := d.server.Version >= 170000 && (d.slot == nil || d.slot.Failover)
	switch {
	case err != nil:
		d.fail(name, err)
	case !manages:
	case failover:
		d.warn(name, "let Patroni be 4.1 or later, or "+catalog.PatroniKeeps(d.cfg.Source.Slot, d.server.Database)+"; docs/how-to/patroni.md has the rest",
			"Patroni manages this cluster; from 4.1 on it leaves failover slots alone, and before that it drops them as soon as nobody reads them")
	default:
		d.warn(name, catalog.PatroniKeeps(d.cfg.Source.Slot, d.server.Database), "%s", catalog.PatroniDrops)
	}
}

// muchRetained is worth a warning, as in the alert CdcOutboxRetainedWALHigh; tests have less.
var muchRetained int64 = 10 << 30

// slotWAL tells how far the slot is from being lost.
func (d *doctor) slotWAL() {
	const name = "slot.wal"
	retained := formatBytes(distance(d.slot.RestartLSN, d.server.FlushLSN))
	limit := d.server.MaxSlotWALKeepSize
	raise := "let the connector catch up, or: ALTER SYSTEM SET max_slot_wal_keep_size = '…'; SELECT pg_reload_conf();"
	left := d.slot.SafeWALSize
	switch {
	case d.slot.WALStatus == "unreserved":
		d.fail(name, failure.Configf(raise, "wal_status is unreserved: the slot is lost at the next checkpoint; it retains %s", retained))
	case left != nil && *left < limit/4:
		d.warn(name, raise, "the slot is lost after another %s of WAL (max_slot_wal_keep_size is %s)", formatBytes(*left), formatBytes(limit))
	case limit < 0 && distance(d.slot.RestartLSN, d.server.FlushLSN) >= muchRetained:
		d.warn(name, "give the disk more room, and find out what the slot waits for: `cdc-outbox status`. Nothing is lost while the slot is there; "+
			"to drop or advance it frees the disk, and takes what was not published out of the stream (exit code 3)",
			"%s retained, and nothing limits that but the disk (max_slot_wal_keep_size is -1)", retained)
	case limit < 0:
		d.ok(name, "%s retained, without a limit (max_slot_wal_keep_size is -1): a long outage may fill the disk", retained)
	default:
		d.ok(name, "%s retained of at most %s", retained, formatBytes(limit))
	}
}

// distance is how many bytes of WAL lie between two positions; never negative.
func distance(from, to pg.LSN) int64 {
	if from == 0 || from > to {
		return 0
	}
	return int64(to - from)
}

// formatBytes prints a size with a binary unit.
func formatBytes(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/(1<<10), 0
	for value >= 1<<10 && unit < 3 {
		value, unit = value/(1<<10), unit+1
	}
	return fmt.Sprintf("%.1f %s", value, []string{"KiB", "MiB", "GiB", "TiB"}[unit])
}
