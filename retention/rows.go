package retention

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

const (
	// rangePages is how much of the table one DELETE looks at: 2 MiB.
	rangePages = 256
	// shortestRest is the least time between two of them.
	shortestRest = 5 * time.Millisecond
)

// deleteRange takes a range of pages, which a TID range scan reads without an
// index. age() counts transactions back from now, in the 32-bit arithmetic of
// transaction ids: the older writer has the greater age.
const deleteRange = `DELETE FROM ONLY %s
 WHERE ctid >= format('(%%s,0)', $1::bigint)::tid AND ctid < format('(%%s,0)', $2::bigint)::tid
   AND %s < clock_timestamp() - $3::interval
   AND age(xmin) > age($4::xid)`

// deleteRows goes once through a table that is no partitioned one, and returns
// how many rows it deleted. It rests after each range for as long as the range
// took, so that it takes half of one connection's time at most.
func (r *retention) deleteRows(ctx context.Context, conn *pgx.Conn, table wal.Table, h horizon) (deleted int64, err error) {
	if h.lsn == 0 {
		return 0, nil // nothing is known to be confirmed yet
	}
	var pages int64
	err = conn.QueryRow(ctx, `SELECT pg_relation_size($1::regclass) / current_setting('block_size')::bigint`, table.Quoted()).Scan(&pages)
	if err != nil {
		return 0, fmt.Errorf("read the size of %s: %w", table, err)
	}
	statement := fmt.Sprintf(deleteRange, table.Quoted(), wal.QuoteIdentifier(r.opts.Column))
	for page := int64(0); page < pages; page += rangePages {
		started := time.Now()
		tag, err := conn.Exec(ctx, statement, page, page+rangePages, r.opts.After, h.xmin)
		if err != nil {
			return deleted, fmt.Errorf("delete old rows of %s: %w", table, err)
		}
		deleted += tag.RowsAffected()
		r.opts.Observer.RetentionDeleted(table, tag.RowsAffected())
		if err := backoff.Sleep(ctx, max(shortestRest, time.Since(started))); err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}
