package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Parts are Run's parts. All are required.
type Parts struct {
	Options
	// Connect opens the connection the statements run on. It must lead to the
	// server and timeline of Confirmed's positions.
	Connect func(context.Context) (*pgx.Conn, error)
	// Tables are the outbox tables, partitioned or not.
	Tables []pg.Table
	// Confirmed is the position up to which everything committed is published
	// and saved.
	Confirmed func() pg.LSN
	Observer  Observer
	Log       *zap.Logger
}

// Observer is told of the work; it must not block.
type Observer interface {
	// RetentionDeleted is told of rows deleted.
	RetentionDeleted(table pg.Table, rows int64)
	// RetentionPartition is told of a partition created or dropped.
	RetentionPartition(table pg.Table, change PartitionChange)
	// RetentionPassed is told of each pass through the rows or the partitions of a
	// table, with the size of the table and the indexes in bytes, and why the pass
	// failed, or nil.
	RetentionPassed(table pg.Table, bytes int64, err error)
}

// PartitionChange is a change of a partition.
type PartitionChange string

// The changes.
const (
	Created PartitionChange = "created"
	Dropped PartitionChange = "dropped"
)

// lockTimeout bounds the wait for a lock on a whole table: in the meantime
// writers queue up behind us.
const lockTimeout = 100 * time.Millisecond

// reconnectWaits are the waits between attempts to connect.
var reconnectWaits = backoff.Range{First: time.Second, Longest: time.Minute}

// Run keeps the tables small until ctx ends. To be started only when the rows
// of a snapshot are published: they do not come through the log.
func Run(ctx context.Context, o Parts) {
	r := &retention{opts: o, turns: make([]turn, len(o.Tables)), full: map[pg.Table]time.Time{}}
	retry := backoff.Series{Range: reconnectWaits}
	outage := digest.NewOutage(o.Log, "retention has a connection again")
	for ctx.Err() == nil {
		err := r.session(ctx, func() {
			retry.Reset()
			outage.Over()
		})
		if ctx.Err() != nil {
			return
		}
		wait := retry.Next()
		outage.Failed("retention lost its connection, will reconnect", err, zap.Duration("wait", wait))
		_ = backoff.Sleep(ctx, wait) // the loop sees ctx
	}
}

// retention is a single call of Run.
type retention struct {
	opts  Parts
	turns []turn                 // of the tables, in their order
	seen  map[since]horizon      // the connection's first look at a partition in a state
	full  map[pg.Table]time.Time // until when none are created, because the default partition holds their rows
}

// session makes passes on a single connection until ctx ends or the connection
// breaks. connected is called once there is one.
func (r *retention) session(ctx context.Context, connected func()) error {
	conn, err := r.opts.Connect(ctx)
	if err != nil {
		return err
	}
	defer catalog.Close(conn)
	if _, err := conn.Exec(ctx, fmt.Sprintf("SET lock_timeout = %d", lockTimeout.Milliseconds())); err != nil {
		return fmt.Errorf("set lock_timeout: %w", err)
	}
	connected()
	r.seen = map[since]horizon{}
	var moments horizons
	for {
		if err := moments.advance(ctx, conn, r.opts.Confirmed()); err != nil {
			return err
		}
		if err := r.passAll(ctx, conn, moments.confirmed); err != nil {
			return err
		}
		if err := backoff.Sleep(ctx, r.opts.look()); err != nil {
			return err
		}
	}
}

// passAll gives the tables due their turns. The error is the end of the
// connection.
func (r *retention) passAll(ctx context.Context, conn *pgx.Conn, h horizon) error {
	for i, table := range r.opts.Tables {
		t := &r.turns[i]
		if time.Now().Before(t.next) {
			continue
		}
		passed, err := r.pass(ctx, conn, table, t, h)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && !passed:
			continue
		}
		var size int64
		if err == nil {
			size, err = readSize(ctx, conn, table)
		}
		r.opts.Observer.RetentionPassed(table, size, err)
		if conn.IsClosed() {
			return errors.Join(errors.New("connection closed"), err)
		}
		if err == nil {
			t.said = ""
			continue
		}
		if r.failed(t, err) {
			r.opts.Log.Warn("retention failed for a table, will try again", zap.Stringer("table", table),
				zap.Error(err), zap.String("remedy", failure.RemedyOf(err)))
		}
	}
	return nil
}

// pass keeps one table, if anything is due.
func (r *retention) pass(ctx context.Context, conn *pgx.Conn, table pg.Table, t *turn, h horizon) (passed bool, err error) {
	var strategy string // empty for a table without partitions
	err = conn.QueryRow(ctx, `SELECT COALESCE(max(partstrat::text), '') FROM pg_partitioned_table WHERE partrelid = $1::regclass`,
		table.Quoted()).Scan(&strategy)
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", table, err)
	}
	rows := r.dueRows(t, h)
	switch strategy {
	case "l", "h":
		return true, notByTime(table)
	case "r":
		return true, withRemedy(r.keepPartitions(ctx, conn, table, rows, h))
	}
	if rows {
		_, err = r.deleteRows(ctx, conn, table, h)
	}
	return rows, withRemedy(err)
}

// readSize is the size of a table in bytes, with the partitions and indexes.
func readSize(ctx context.Context, conn *pgx.Conn, table pg.Table) (size int64, err error) {
	err = conn.QueryRow(ctx, `SELECT sum(pg_total_relation_size(relid)) FROM (
		SELECT $1::regclass AS relid UNION ALL SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = $1::regclass) t`,
		table.Quoted()).Scan(&size)
	if err != nil {
		return 0, fmt.Errorf("read the size of %s: %w", table, err)
	}
	return size, nil
}
