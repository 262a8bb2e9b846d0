package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// ReadFlushed returns the end of a primary's log on disk: a stream gets there
// without a further write.
func ReadFlushed(ctx context.Context, conn *pgx.Conn) (pg.LSN, error) {
	var text string
	err := conn.QueryRow(ctx, `SELECT pg_current_wal_flush_lsn()::text`).Scan(&text)
	var end pg.LSN
	if err == nil {
		end, err = pg.ParseLSN(text)
	}
	if err != nil {
		return 0, fmt.Errorf("read the end of the log: %w", err)
	}
	return end, nil
}
