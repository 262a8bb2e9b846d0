package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

func readSetting[T any](ctx context.Context, conn *pgx.Conn, sql string) (value T, err error) {
	if err := conn.QueryRow(ctx, sql).Scan(&value); err != nil {
		return value, fmt.Errorf("read settings: %w", err)
	}
	return value, nil
}

// InRecovery tells whether the server is a standby.
func InRecovery(ctx context.Context, conn *pgx.Conn) (bool, error) {
	return readSetting[bool](ctx, conn, `SELECT pg_is_in_recovery()`)
}

// NextXID is the number of the next transaction, of 64 bits.
func NextXID(ctx context.Context, conn *pgx.Conn) (uint64, error) {
	return readSetting[uint64](ctx, conn, `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8`)
}

// ReadOnly tells whether the session's transactions are read-only, on a standby
// as well.
func ReadOnly(ctx context.Context, conn *pgx.Conn) (bool, error) {
	return readSetting[bool](ctx, conn, `SELECT current_setting('transaction_read_only')::bool`)
}

// Prepares tells whether applications may prepare transactions.
func Prepares(ctx context.Context, conn *pgx.Conn) (bool, error) {
	return readSetting[bool](ctx, conn, `SELECT current_setting('max_prepared_transactions')::int > 0`)
}

// TransactionTimeout is transaction_timeout (17) of the login, with its unit;
// "" for none. The login's value is the result of a reset.
func TransactionTimeout(ctx context.Context, conn *pgx.Conn) (string, error) {
	return readSetting[string](ctx, conn,
		`SELECT COALESCE((SELECT reset_val || unit FROM pg_settings WHERE name = 'transaction_timeout' AND reset_val <> '0'), '')`)
}

// PendingRestart returns the changed settings about slots and the log that wait
// for the server's next start, with their present values.
func PendingRestart(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, _ := conn.Query(ctx, `SELECT format('%s (%s now)', name, setting) FROM pg_settings
		WHERE pending_restart AND name IN ('wal_level', 'max_replication_slots', 'max_wal_senders') ORDER BY name`)
	pending, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	return pending, nil
}

// ReadVersion reads Version and InRecovery of the server, and the database's
// name, where a pooler may stand between.
func ReadVersion(ctx context.Context, conn *pgx.Conn) (s Server, database string, err error) {
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), current_database()::text`).
		Scan(&s.Version, &s.InRecovery, &database)
	if err != nil {
		return s, "", fmt.Errorf("read settings: %w", err)
	}
	return s, database, nil
}
