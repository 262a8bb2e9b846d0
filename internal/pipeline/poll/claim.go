package poll

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/lease"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

const (
	// statementTimeout bounds each exchange with the server, so a dead connection
	// is noticed.
	statementTimeout = 30 * time.Second
	// claimMargin is how much longer than source.poll.claim_timeout the server
	// waits for us before it ends the transaction.
	claimMargin = 2 * time.Second
	// laneWait is the longest wait for a lane; it must be shorter than
	// statementTimeout.
	laneWait = 10 * time.Second
)

// claim is a transaction holding lanes of a table and rows in them. mark or rollback
// ends a claim. A single goroutine uses a claim.
type claim struct {
	conn  *pgconn.PgConn
	table *Table
	all   int   // lanes of the table
	held  []int // lanes of the claim
	// asked is when rows were last asked for: the server waits for us from then on, or
	// from later.
	asked lease.Instant
}

// row is a row held by a claim, or held back.
type row struct {
	key    string // the outbox key's text; "" for NULL
	rel    string // table's OID; "" for a row not claimed
	at     string // ctid
	values []pg.Value
	time   time.Time // of creation; zero where unknown
	size   int64     // of the values in memory, and of all else kept for the row
}

// rowMemory is about the memory of a row and its event beside the values' bytes.
const rowMemory = 1 << 10

// beginClaim begins the transaction and takes lanes in the order given, up to limit,
// perhaps none. With count it also counts the busy workers of all instances.
func beginClaim(ctx context.Context, conn *pgconn.PgConn, t *Table, holdFor time.Duration, lanes []int, limit int, count bool) (c *claim, present int, err error) {
	sql := t.beginSQL(holdFor + claimMargin)
	if count {
		sql += t.presentSQL()
	}
	results, err := execute(ctx, conn, sql+t.lanesSQL(lanes, limit))
	if err != nil {
		rollback(ctx, conn)
		return nil, 0, fmt.Errorf("begin claim: %w", classify(err, t))
	}
	c = &claim{conn: conn, table: t, all: len(lanes)}
	c.take(results[len(results)-1])
	if count {
		present, _ = strconv.Atoi(string(results[len(results)-2].Rows[0][0]))
	}
	return c, present, nil
}

// take notes lanes locked.
func (c *claim) take(result *pgconn.Result) {
	for _, r := range result.Rows {
		lane, _ := strconv.Atoi(string(r[0])) // we gave the numbers
		c.held = append(c.held, lane)
	}
}

// await waits for the first lane and then takes other free lanes, up to limit.
// PostgreSQL serves waiting sessions in turn. After patience the claim has no lanes,
// and the transaction is over.
func (c *claim) await(ctx context.Context, lanes []int, limit int, patience time.Duration) error {
	_, err := execute(ctx, c.conn, c.table.awaitLaneSQL(lanes[0], patience))
	if err == nil {
		c.held = append(c.held, lanes[0])
		var results []*pgconn.Result
		if results, err = execute(ctx, c.conn, c.table.lanesSQL(lanes[1:], limit-1)); err == nil {
			c.take(results[0])
			return nil
		}
	}
	c.held = nil
	rollback(ctx, c.conn)
	if pgsql.State(err) == pgerrcode.LockNotAvailable {
		return nil
	}
	return fmt.Errorf("wait for a lane: %w", classify(err, c.table))
}

// fetches is how often a claim reads before taking the rows found.
const fetches = 8

// rows fetches rows, and leaves out keys held back if they would crowd out the others.
// A single fetch reads all results: the rows, the free rows among them, and the
// number of rows seen.
func (c *claim) rows(ctx context.Context, limit int, bytes int64) (rows, free []row, seen int, err error) {
	var without []string
	for range fetches {
		if rows, seen, err = c.fetch(ctx, limit, bytes, without); err != nil {
			return nil, nil, 0, err
		}
		var held []string
		free, held = inOrder(rows)
		if seen < limit || 2*len(free) >= len(rows) {
			break
		}
		without = append(without, held...)
	}
	return rows, free, seen, nil
}

// fetch reads and locks the first rows of the lanes, without some keys, up to limit
// rows or as many as fit the bytes, at least the first. rows are in order; rows
// without rel are held by another session. seen counts all, up to limit.
func (c *claim) fetch(ctx context.Context, limit int, bytes int64, without []string) (rows []row, seen int, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	surplus, cancelled := max(bytes, minSurplus), false
	c.asked = lease.Now()
	results := c.conn.Exec(ctx, c.table.fetchSQL(c.held, c.all, limit, without))
	for results.NextResult() {
		reader := results.ResultReader()
		for reader.NextRow() {
			seen++
			if seen == 1 || bytes > 0 {
				r := c.table.readRow(reader.Values())
				bytes -= r.size
				rows = append(rows, r)
				continue
			}
			// Locked, but left to another batch.
			for _, v := range reader.Values() {
				surplus -= int64(len(v))
			}
			if surplus < 0 && !cancelled {
				cancelled = true
				_ = c.conn.CancelRequest(ctx) // otherwise the rest is read through
			}
		}
	}
	if err := results.Close(); cancelled && pgsql.State(err) == pgerrcode.QueryCanceled {
		return nil, 0, &surplusError{fit: len(rows)}
	} else if err != nil {
		return nil, 0, fmt.Errorf("claim rows of %s: %w", c.table.Name, classify(err, c.table))
	}
	return rows, seen, nil
}

// minSurplus is the least number of bytes read beyond the limit before the claim is
// given up, and made again with a lower limit.
const minSurplus = 1 << 20

// surplusError means far too many rows in the claim.
type surplusError struct{ fit int }

func (e *surplusError) Error() string { return fmt.Sprintf("only the first %d rows fit", e.fit) }

// readRow copies a result row.
func (t *Table) readRow(columns [][]byte) row {
	key, _ := t.charset.UTF8(columns[0])
	r := row{key: string(key), rel: string(columns[1]), at: string(columns[2]), size: rowMemory}
	if r.rel == "" {
		return r
	}
	if micros, err := strconv.ParseInt(string(columns[3]), 10, 64); err == nil && micros > 0 {
		r.time = time.UnixMicro(micros).UTC()
	}
	columns = columns[fetchColumns:]
	for _, c := range columns {
		r.size += int64(len(c))
	}
	r.values = make([]pg.Value, len(columns))
	pg.CopyText(r.values, columns)
	t.charset.Convert(r.values)
	return r
}

// errClaimEnded is wrapped by the cause of a context of whileHeld.
var errClaimEnded = errors.New("the server ended the transaction that held the rows")

// whileHeld calls do with a context ending with the server's transaction: the rows are
// free then, and another instance may publish them and later rows.
func (c *claim) whileHeld(ctx context.Context, do func(context.Context)) {
	held, end := context.WithCancelCause(ctx)
	defer end(nil)
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	var watcher sync.WaitGroup
	watcher.Go(func() {
		if err := c.awaitEnd(watching); watching.Err() == nil {
			end(fmt.Errorf("%w: %w", errClaimEnded, err))
		}
	})
	do(held)
	stop()
	watcher.Wait()
}

// awaitEnd reads until the end of the connection or of ctx: the server has nothing else
// to say.
func (c *claim) awaitEnd(ctx context.Context) error {
	for {
		some, cancel := context.WithTimeout(ctx, statementTimeout)
		err := c.conn.WaitForNotification(some)
		over := some.Err() != nil
		cancel()
		if ctx.Err() != nil || err != nil && !over {
			return err
		}
	}
}

// mark marks or deletes the rows and commits. After an error the work may be
// done nevertheless.
func (c *claim) mark(ctx context.Context, rows []row) error {
	places := map[string][]string{}
	for _, r := range rows {
		places[r.rel] = append(places[r.rel], r.at)
	}
	results, err := execute(ctx, c.conn, c.table.markSQL(places))
	if err != nil {
		rollback(ctx, c.conn)
		return fmt.Errorf("mark rows of %s as published: %w", c.table.Name, classifyMark(err, c.table))
	}
	marked := 0
	for _, r := range results {
		marked += int(r.CommandTag.RowsAffected())
	}
	if marked != len(rows) {
		return unmarked(c.table, marked, len(rows))
	}
	return nil
}

// rollback ends the transaction and changes nothing.
func (c *claim) rollback(ctx context.Context) { rollback(ctx, c.conn) }

// rollback ignores errors: the next use finds a broken connection.
func rollback(ctx context.Context, conn *pgconn.PgConn) {
	if !conn.IsClosed() {
		_, _ = execute(ctx, conn, "ROLLBACK")
	}
}

// execute runs statements in the simple protocol, for values as text. The end of
// statementTimeout closes the connection.
func execute(ctx context.Context, conn *pgconn.PgConn, sql string) ([]*pgconn.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return conn.Exec(ctx, sql).ReadAll()
}
