package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

const (
	// defaultSweepBatch is how many rows Sweep deletes in a single statement.
	defaultSweepBatch = 1000
	// rowsPerPage is about how many rows an 8 KiB page holds; it only decides how
	// many pages a batch looks at.
	rowsPerPage = 25
	// truncateLockTimeout is how long a claim of an old id may have to wait for a
	// sweep waiting for another claim.
	truncateLockTimeout = "100ms"
)

// The statements of a sweep; {part} is a table without partitions.
const (
	// sweepBatchSQL deletes expired rows of the pages from $1 to before $2. The
	// pages are read by address, so a sweep reads each page once and needs no
	// index. Rows being changed are passed over: the next sweep sees them. As they
	// are locked, their addresses hold.
	sweepBatchSQL = `
DELETE FROM {part} WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM {part}
	WHERE ctid >= format('(%s,0)', $1::bigint)::tid AND ctid < format('(%s,0)', $2::bigint)::tid
		AND expires_at <= clock_timestamp()
	LIMIT $3::bigint
	FOR UPDATE SKIP LOCKED))`

	pagesSQL = `SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint`

	// forgottenSQL tells whether there are rows, all of them expired.
	forgottenSQL = `
SELECT EXISTS (SELECT FROM {part}) AND NOT EXISTS (SELECT FROM {part} WHERE expires_at > clock_timestamp())`

	liveSQL = `SELECT count(*), count(*) FILTER (WHERE expires_at > clock_timestamp()) FROM {part}`
)

// Maintain implements storage.Maintainer by a sweep each Options.SweepEvery, the
// first after a random part of the interval, so that processes do not sweep all at
// once.
func (s *Store) Maintain(ctx context.Context, report func(error)) {
	if s.options.SweepEvery == 0 {
		return
	}
	for wait := rand.N(s.options.SweepEvery) + 1; backoff.Sleep(ctx, wait) == nil; wait = s.options.SweepEvery {
		if _, err := s.Sweep(ctx, 0); err != nil && ctx.Err() == nil {
			report(err)
		}
	}
}

// Sweep deletes the expired rows and returns how many. Expired rows have no
// effect; they only take room. Sweep reads the whole table once and deletes at
// most batch rows in a single statement (defaultSweepBatch if 0). Sweep waits for
// nobody, and makes nobody wait for longer than such a statement. Have it
// called (Options.SweepEvery, or the program's verb sweep) from one process or
// several; hourly is enough for most. With an error, the count is of the rows
// deleted before.
//
// In a partitioned table, Sweep truncates partitions instead, once all their rows
// have expired; the role must own them, or have TRUNCATE on them. During the last
// look at such a partition, claims of ids from the partition's day wait, a day at
// least the retention ago.
func (s *Store) Sweep(ctx context.Context, batch int) (int, error) {
	if batch <= 0 {
		batch = defaultSweepBatch
	}
	if !s.options.Partitioned {
		return s.sweepPart(ctx, s.table.String(), batch)
	}
	var now time.Time
	if err := s.db.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return 0, fmt.Errorf("sweep %s: %w", s.table, err)
	}
	// The slots that are written to, or soon will be, with a day to spare for other
	// clocks.
	current := map[int]bool{otherSlot: true}
	for _, days := range []int{-1, 0, 1} {
		current[slotOfTime(now.Add(time.Duration(days)*slotSpan))] = true
	}
	swept := 0
	for slot := otherSlot; slot < slots; slot++ {
		sweep := s.truncate
		if current[slot] {
			sweep = func(ctx context.Context, part string) (int, error) { return s.sweepPart(ctx, part, batch) }
		}
		n, err := sweep(ctx, s.table.suffixed(slotSuffix(slot)))
		swept += n
		if err != nil {
			return swept, err
		}
	}
	return swept, nil
}

// sweepPart deletes the expired rows of a table or partition in batches.
func (s *Store) sweepPart(ctx context.Context, part string, batch int) (int, error) {
	fail := func(err error) error { return fmt.Errorf("sweep %s: %w", part, explain(err)) }
	var pages int64
	if err := s.db.QueryRow(ctx, pagesSQL, part).Scan(&pages); err != nil {
		return 0, fail(err)
	}
	sql := strings.ReplaceAll(sweepBatchSQL, "{part}", part)
	step := int64(1 + batch/rowsPerPage)
	swept := 0
	for page := int64(0); page < pages; {
		var n int
		err := retry(ctx, func() error {
			tag, err := s.db.Exec(ctx, sql, page, page+step, batch)
			n = int(tag.RowsAffected())
			return err
		})
		if err != nil {
			return swept, fail(err)
		}
		swept += n
		if n < batch { // the pages are done
			page += step
		}
	}
	return swept, nil
}

// truncate empties a partition if all the rows have expired, and nobody uses it
// at the moment.
func (s *Store) truncate(ctx context.Context, part string) (int, error) {
	fail := func(err error) error { return fmt.Errorf("truncate %s: %w", part, explain(err)) }
	var forgotten bool
	if err := s.db.QueryRow(ctx, strings.ReplaceAll(forgottenSQL, "{part}", part)).Scan(&forgotten); err != nil {
		return 0, fail(err)
	}
	if !forgotten {
		return 0, nil
	}
	rows, live := 0, 0
	err := pgx.BeginTxFunc(ctx, s.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		lock := `SET LOCAL lock_timeout = '` + truncateLockTimeout + `'; LOCK TABLE ` + part + ` IN ACCESS EXCLUSIVE MODE`
		if _, err := tx.Exec(ctx, lock); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, strings.ReplaceAll(liveSQL, "{part}", part)).Scan(&rows, &live)
		if err != nil || live > 0 {
			return err
		}
		_, err = tx.Exec(ctx, `TRUNCATE `+part)
		return err
	})
	switch {
	case pgsql.State(err) == pgerrcode.LockNotAvailable, err == nil && live > 0:
		return 0, nil // in use; the next sweep will see
	case err != nil:
		return 0, fail(err)
	}
	return rows, nil
}
