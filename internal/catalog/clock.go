package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// ClockAhead is the lead of the server's clock over ours, negative if behind,
// give or take the second value.
func ClockAhead(ctx context.Context, conn *pgx.Conn) (ahead, give time.Duration, err error) {
	asked := time.Now()
	now, err := Now(ctx, conn)
	if err != nil {
		return 0, 0, err
	}
	give = time.Since(asked) / 2
	return now.Sub(asked.Add(give)), give, nil
}

// Now reads the server's clock.
func Now(ctx context.Context, conn *pgx.Conn) (time.Time, error) {
	var micros int64
	if err := conn.QueryRow(ctx, `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`).Scan(&micros); err != nil {
		return time.Time{}, fmt.Errorf("read the server's clock: %w", err)
	}
	return time.UnixMicro(micros), nil
}

// WALAge is the time since the server last wrote to the log's file with the
// position: the position is at least as old. Unknown if the file is gone, or the
// role lacks pg_monitor.
func WALAge(ctx context.Context, conn *pgx.Conn, at pg.LSN) (age time.Duration, known bool, err error) {
	var seconds *float64
	err = conn.QueryRow(ctx, `
		SELECT extract(epoch FROM clock_timestamp() - max(modification))::float8
		  FROM pg_ls_waldir() WHERE name = pg_walfile_name($1::text::pg_lsn)`, at.String()).Scan(&seconds)
	switch {
	case pgsql.State(err) == pgerrcode.InsufficientPrivilege:
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("read the age of the log: %w", err)
	case seconds == nil:
		return 0, false, nil
	}
	return time.Duration(*seconds * float64(time.Second)), true, nil
}
