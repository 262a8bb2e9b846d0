package postgres

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// brief is a transaction, or a part, of no use beyond the message's end: the
// connection is another message's then. pgx does
// not know when, as the commit is sent together with the completion.
type brief struct {
	pgx.Tx
	over *atomic.Bool // the message
}

// closed is a transaction pgx knows to have ended.
var closed = func() pgx.Tx {
	var b pgx.Batch
	b.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(&b, pgx.ErrTxClosed).Tx()
}()

func (tx brief) now() pgx.Tx {
	if tx.over.Load() {
		return closed
	}
	return tx.Tx
}

func (tx brief) Begin(ctx context.Context) (pgx.Tx, error) {
	part, err := tx.now().Begin(ctx)
	if err != nil {
		return nil, err
	}
	return brief{Tx: part, over: tx.over}, nil
}

func (tx brief) Commit(ctx context.Context) error   { return tx.now().Commit(ctx) }
func (tx brief) Rollback(ctx context.Context) error { return tx.now().Rollback(ctx) }

func (tx brief) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	return tx.now().CopyFrom(ctx, table, columns, rows)
}

func (tx brief) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return tx.now().SendBatch(ctx, b)
}

func (tx brief) LargeObjects() pgx.LargeObjects { return tx.now().LargeObjects() }

func (tx brief) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return tx.now().Prepare(ctx, name, sql)
}

func (tx brief) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return tx.now().Exec(ctx, sql, args...)
}

func (tx brief) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return tx.now().Query(ctx, sql, args...)
}

func (tx brief) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return tx.now().QueryRow(ctx, sql, args...)
}
