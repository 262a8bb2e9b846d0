package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

const (
	// firstPages and mostPages are the pages of a DELETE: of the first in a pass,
	// and at most (2 MiB).
	firstPages, mostPages = 16, 256
	// longRange is the duration of a DELETE from which the next takes fewer pages.
	// If values are stored apart (TOAST), there is much to delete for a single
	// page.
	longRange = 50 * time.Millisecond
	// shortestRest is the least time between two DELETEs.
	shortestRest = 5 * time.Millisecond
)

// deleteRange takes a range of pages. A TID range scan reads them without an index
// (the clock keeps the planner from an index on the time).
//
// age() counts transactions back from now, in the arithmetic of 32-bit
// transaction ids: within 2^31 the older writer has the greater age. A still older
// row is frozen, but keeps the writer's id, with a negative age; just below zero is
// the age of a writer that began after the statement. A horizon nearly so old tells
// nothing.
const deleteRange = `DELETE FROM ONLY %s
 WHERE ctid >= format('(%%s,0)', $1::bigint)::tid AND ctid < format('(%%s,0)', $2::bigint)::tid
   AND %s < clock_timestamp() - $3::interval
   AND age(xmin) NOT BETWEEN -100000000 AND age($4::text::xid8::xid)
   AND (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint - $4::text::bigint < 2000000000)`

// deleteRows goes once through a table that is not partitioned, and returns the
// number of deleted rows. After each range it rests for as long as the range took,
// so deletion takes half of a connection's time at most. A range with a locked row
// is left for the next pass.
func (r *retention) deleteRows(ctx context.Context, conn *pgx.Conn, table pg.Table, h horizon) (deleted int64, err error) {
	var pages int64
	err = conn.QueryRow(ctx, `SELECT pg_relation_size($1::regclass) / current_setting('block_size')::bigint`, table.Quoted()).Scan(&pages)
	if err != nil {
		return 0, fmt.Errorf("read the size of %s: %w", table, err)
	}
	statement := fmt.Sprintf(deleteRange, table.Quoted(), pgsql.Name(r.opts.Column))
	horizon := fmt.Sprint(h.xmin)
	var locked error // the last
	size := int64(firstPages)
	for page := int64(0); page < pages; {
		started := time.Now()
		tag, err := conn.Exec(ctx, statement, page, page+size, r.opts.After, horizon)
		took := time.Since(started)
		if err != nil {
			err = deletion(table, err)
			if !isHeld(err) {
				return deleted, errors.Join(locked, err)
			}
			locked = err
		} else {
			deleted += tag.RowsAffected()
			r.opts.Observer.RetentionDeleted(table, tag.RowsAffected())
		}
		page += size
		size = nextSize(size, took)
		if err := backoff.Sleep(ctx, max(shortestRest, took)); err != nil {
			return deleted, err
		}
	}
	return deleted, locked
}

// nextSize is the next range's number of pages, after a range of so many.
func nextSize(pages int64, took time.Duration) int64 {
	switch {
	case took > longRange:
		return max(1, pages/2)
	case took < longRange/4:
		return min(mostPages, pages*2)
	}
	return pages
}
