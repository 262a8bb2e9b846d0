package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Sessions share these locks, so they keep nobody out. They only show, to every
// role, the instances of a slot, and end with the session.
const (
	standbyLock = "cdc-outbox standby" // of a spare, for the slot awaited
	readerLock  = "cdc-outbox reader"  // of the instance reading the slot, beside its stream
)

// showing takes locks, by name and purpose. It does not wait.
func showing(ctx context.Context, conn *pgx.Conn, locks []lock) error {
	names, of := make([]string, len(locks)), make([]string, len(locks))
	for i, l := range locks {
		names[i], of[i] = l.name, l.of
	}
	if _, err := conn.Exec(ctx, `SELECT pg_try_advisory_lock_shared(hashtext(name), hashtext(subject))
		FROM unnest($1::text[], $2::text[]) locks(name, subject)`, names, of); err != nil {
		return fmt.Errorf("show that this instance is there: %w", err)
	}
	return nil
}

// lock is a kind of lock, with its purpose.
type lock struct{ name, of string }

// shown are the locks of the name, and for the same, in pg_locks l.
const shown = `l.locktype = 'advisory' AND l.mode = 'ShareLock' AND l.granted AND l.objsubid = 2
		   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		   AND (l.classid, l.objid) = (hashtext($1)::oid, hashtext($2)::oid)`

// Reader is the session of an instance that announces reading the slot.
type Reader struct {
	PID int32
	// Silent is the time since the server last heard from the reader; 0 if hidden
	// from the role.
	Silent time.Duration
}

// ReadReaders returns the other sessions of Reading.Show for the slot.
func ReadReaders(ctx context.Context, conn *pgx.Conn, slot string) ([]Reader, error) {
	rows, _ := conn.Query(ctx, `
		SELECT l.pid, COALESCE(extract(epoch FROM clock_timestamp() - a.state_change), 0)::float8
		  FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		 WHERE `+shown+` AND l.pid <> pg_backend_pid()`, readerLock, slot)
	readers, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Reader, err error) {
		var silent float64
		err = row.Scan(&r.PID, &silent)
		r.Silent = time.Duration(silent * float64(time.Second))
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for an instance that reads slot %q: %w", slot, err)
	}
	return readers, nil
}

// Orphaned reports whether a process of ours, by its application_name, reads the
// slot, although no instance announces reading it.
func Orphaned(ctx context.Context, conn *pgx.Conn, slot string) (is bool, err error) {
	err = conn.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM pg_replication_slots s JOIN pg_stat_activity a ON a.pid = s.active_pid
		                WHERE s.slot_name = $2 AND a.application_name = current_setting('application_name'))
		   AND NOT EXISTS (SELECT FROM pg_locks l WHERE `+shown+`)`, readerLock, slot).Scan(&is)
	if err != nil {
		return false, fmt.Errorf("look for the instance that reads slot %q: %w", slot, err)
	}
	return is, nil
}

// ReadStandbys returns the connections of the instances waiting for a slot of
// the database, the oldest first. Of another role's only the number may be
// known.
func ReadStandbys(ctx context.Context, conn *pgx.Conn, slot string) ([]Holder, error) {
	rows, _ := conn.Query(ctx, `
		SELECT l.pid, COALESCE(a.application_name, ''), COALESCE(host(a.client_addr), ''), COALESCE(a.usename::text, ''), a.backend_start
		  FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		 WHERE `+shown+`
		 ORDER BY a.backend_start, l.pid`, standbyLock, slot)
	standbys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h Holder, err error) {
		return h, row.Scan(&h.PID, &h.Application, &h.Address, &h.User, &h.Since)
	})
	if err != nil {
		return nil, fmt.Errorf("look for instances that stand by: %w", err)
	}
	return standbys, nil
}
