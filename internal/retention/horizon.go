package retention

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// horizon is a moment: every transaction before xmin had ended by then, with the
// end before lsn in the log.
type horizon struct {
	xmin int64 // with the epoch; a row has only the lower half
	lsn  pg.LSN
}

// The snapshot is taken before the functions run, so the position is read after
// the end of every transaction the snapshot takes for ended.
const horizonQuery = `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_current_wal_insert_lsn()::text`

func readHorizon(ctx context.Context, conn *pgx.Conn) (horizon, error) {
	var h horizon
	var lsn string
	if err := conn.QueryRow(ctx, horizonQuery).Scan(&h.xmin, &lsn); err != nil {
		return h, fmt.Errorf("read the log position: %w", err)
	}
	parsed, err := pglogrepl.ParseLSN(lsn)
	if err != nil {
		return h, fmt.Errorf("read the log position: %w", err)
	}
	h.lsn = parsed
	return h, nil
}

// horizons moves a horizon forward as the confirmed position passes it.
type horizons struct {
	confirmed horizon // everything before is confirmed; zero at first
	next      horizon
}

// advance settles the next horizon once the confirmed position has reached it,
// and then takes another.
func (h *horizons) advance(ctx context.Context, conn *pgx.Conn, confirmed pg.LSN) error {
	if h.next.lsn != 0 {
		if confirmed < h.next.lsn {
			return nil
		}
		h.confirmed = h.next
	}
	next, err := readHorizon(ctx, conn)
	if err != nil {
		return err
	}
	h.next = next
	return nil
}
