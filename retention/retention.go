package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/outbox"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// Options say what to keep. All but Ahead are required.
type Options struct {
	// Connect opens the connection that the statements run on, to the server whose
	// log Confirmed speaks of: to no other, and none of another timeline.
	Connect func(context.Context) (*pgx.Conn, error)
	// Tables are the outbox tables, partitioned or not.
	Tables []wal.Table
	// After is how old a row is when it goes, by Column and the server's clock.
	After  time.Duration
	Column string
	// Interval is the least time between two passes through a table. A pass
	// reads the whole table, so that one follows another after a twentieth of
	// After at the earliest.
	Interval time.Duration
	// Ahead is how many partitions beyond the present one are created, each of
	// the length Span; 0 creates none.
	Ahead int
	Span  outbox.Span
	// Confirmed is the position up to which everything that was committed is
	// published and saved.
	Confirmed func() wal.LSN
	Observer  Observer
	Log       *zap.Logger
}

// Observer is told what happens; it must not block.
type Observer interface {
	// RetentionDeleted is told of rows deleted.
	RetentionDeleted(table wal.Table, rows int64)
	// RetentionPartition is told of a partition created or dropped.
	RetentionPartition(table wal.Table, change PartitionChange)
	// RetentionPassed is told of each pass through a table, with the size of
	// the table and its indexes in bytes, and why the pass failed, or nil.
	RetentionPassed(table wal.Table, bytes int64, err error)
}

// PartitionChange is what happened to a partition.
type PartitionChange string

// The changes.
const (
	Created PartitionChange = "created"
	Dropped PartitionChange = "dropped"
)

// lockTimeout bounds what a lock on a whole table is waited for: meanwhile
// writers queue up behind us.
const lockTimeout = 100 * time.Millisecond

// passesPerAge is how many passes are made while a row grows old.
const passesPerAge = 20

// reconnectWaits are those between attempts to connect.
var reconnectWaits = backoff.Range{First: time.Second, Longest: time.Minute}

// Run keeps the tables until ctx ends. Start it only when nothing that is in the
// tables is still to be published in another way than through the log, as the
// rows of a snapshot are.
func Run(ctx context.Context, o Options) {
	r := &retention{opts: o}
	retry := backoff.Series{Range: reconnectWaits}
	for ctx.Err() == nil {
		err := r.session(ctx, &retry)
		if ctx.Err() != nil {
			return
		}
		wait := retry.Next()
		o.Log.Warn("retention lost its connection, will reconnect", zap.Error(err), zap.Duration("wait", wait))
		_ = backoff.Sleep(ctx, wait) // the loop sees ctx
	}
}

// retention is one call of Run.
type retention struct {
	opts Options
	seen map[since]horizon // when a partition was first seen in a state, on this connection
}

// session makes passes on one connection until ctx ends or it breaks.
func (r *retention) session(ctx context.Context, retry *backoff.Series) error {
	conn, err := r.opts.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // nothing is pending on it
	}()
	if _, err := conn.Exec(ctx, fmt.Sprintf("SET lock_timeout = %d", lockTimeout.Milliseconds())); err != nil {
		return fmt.Errorf("set lock_timeout: %w", err)
	}
	retry.Reset()
	r.seen = map[since]horizon{}
	var moments horizons
	every := max(r.opts.Interval, r.opts.After/passesPerAge)
	for {
		if err := moments.advance(ctx, conn, r.opts.Confirmed()); err != nil {
			return err
		}
		r.passAll(ctx, conn, moments.settled)
		if conn.IsClosed() {
			return errors.New("connection closed")
		}
		if err := backoff.Sleep(ctx, every); err != nil {
			return err
		}
	}
}

func (r *retention) passAll(ctx context.Context, conn *pgx.Conn, h horizon) {
	for _, table := range r.opts.Tables {
		size, err := r.pass(ctx, conn, table, h)
		if ctx.Err() != nil {
			return
		}
		r.opts.Observer.RetentionPassed(table, size, err)
		if err != nil {
			r.opts.Log.Warn("retention failed for a table, will try again", zap.Stringer("table", table),
				zap.Error(err), zap.String("remedy", failure.RemedyOf(err)))
		}
	}
}

// pass keeps one table, and returns its size in bytes.
func (r *retention) pass(ctx context.Context, conn *pgx.Conn, table wal.Table, h horizon) (size int64, err error) {
	var kind string
	err = conn.QueryRow(ctx, `SELECT relkind::text FROM pg_class WHERE oid = $1::regclass`, table.Quoted()).Scan(&kind)
	if err != nil {
		return 0, fmt.Errorf("look at %s: %w", table, err)
	}
	if kind == "p" {
		err = r.keepPartitions(ctx, conn, table, h)
	} else {
		_, err = r.deleteRows(ctx, conn, table, h)
	}
	if err != nil {
		return 0, explain(err)
	}
	err = conn.QueryRow(ctx, `SELECT sum(pg_total_relation_size(relid)) FROM (
		SELECT $1::regclass AS relid UNION ALL SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = $1::regclass) t`,
		table.Quoted()).Scan(&size)
	if err != nil {
		return 0, fmt.Errorf("read the size of %s: %w", table, err)
	}
	return size, nil
}
