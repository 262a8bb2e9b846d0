package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// standbyLock names what a spare locks while it waits for a slot: sessions share
// the lock, so it keeps nobody out. It only shows who waits, to every role, and
// ends with the session.
const standbyLock = `hashtext('cdc-outbox standby'), hashtext($1)`

// StandBy shows to ReadStandbys of the same slot that this connection's instance
// waits for it, until the connection ends. It does not wait.
func StandBy(ctx context.Context, conn *pgx.Conn, slot string) error {
	if _, err := conn.Exec(ctx, "SELECT pg_try_advisory_lock_shared("+standbyLock+")", slot); err != nil {
		return fmt.Errorf("show that this instance stands by: %w", err)
	}
	return nil
}

// ReadStandbys returns the connections of the instances that wait for a slot of
// this database, the oldest first. Of another role's only the number may be known.
func ReadStandbys(ctx context.Context, conn *pgx.Conn, slot string) ([]Holder, error) {
	rows, _ := conn.Query(ctx, `
		SELECT l.pid, COALESCE(a.application_name, ''), COALESCE(host(a.client_addr), ''), COALESCE(a.usename::text, ''), a.backend_start
		  FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		 WHERE l.locktype = 'advisory' AND l.mode = 'ShareLock' AND l.granted AND l.objsubid = 2
		   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		   AND (l.classid, l.objid) = (hashtext('cdc-outbox standby')::oid, hashtext($1)::oid)
		 ORDER BY a.backend_start, l.pid`, slot)
	standbys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h Holder, err error) {
		return h, row.Scan(&h.PID, &h.Application, &h.Address, &h.User, &h.Since)
	})
	if err != nil {
		return nil, fmt.Errorf("look for instances that stand by: %w", err)
	}
	return standbys, nil
}
