package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// The errors of a handler mistreating the transaction.
var (
	// errNoTransaction: Tx was called with a context other than, and not derived
	// from, the context of a handler under Transactional. No statement was run.
	errNoTransaction = errors.New("there is no transaction: the context is not that of a handler under postgres.Transactional")
	// errTxControl: a handler called Commit or Rollback of Tx's transaction. The
	// transaction was rolled back.
	errTxControl = errors.New("the transaction is Transactional's: return nil to commit it, an error to roll it back, and use its Begin for a part of it")
	// errTxEnded: a handler ended the transaction by SQL. The writes
	// may be committed although the key is not completed.
	errTxEnded = fmt.Errorf("%w, by SQL", storage.ErrEscaped)
	// errTxFailed: a handler returned nil after a failed statement. PostgreSQL
	// commits nothing then. The transaction was rolled
	// back.
	errTxFailed = errors.New("the handler returned nil, but a statement of its transaction had failed; return that error, or run what may fail within Begin")
	// errTxBusy: a handler returned nil in the middle of a result. The transaction
	// was rolled back.
	errTxBusy = errors.New("the handler returned nil, but has not closed the rows, or the batch, of its last statement")
)

type txKey struct{}

// Tx returns the transaction of the handler running with this context under
// Transactional. For any other context, all calls of the result fail with
// errNoTransaction; the Conn is nil, and the LargeObjects fail with
// pgx.ErrTxClosed. The transaction is for the handler's goroutine and ends with
// the handler: a kept transaction returns pgx.ErrTxClosed. Begin makes
// a savepoint; Commit and Rollback make the attempt fail with errTxControl.
func Tx(ctx context.Context) pgx.Tx {
	if tx, ok := ctx.Value(txKey{}).(pgx.Tx); ok {
		return tx
	}
	return noTx{}
}

// lentTx is a transaction the user may not end.
type lentTx struct {
	brief
	misused bool
}

func lend(tx pgx.Tx) *lentTx { return &lentTx{brief: brief{Tx: tx, over: new(atomic.Bool)}} }

func (tx *lentTx) Commit(context.Context) error {
	tx.misused = true
	return errTxControl
}

func (tx *lentTx) Rollback(context.Context) error {
	tx.misused = true
	return errTxControl
}

// The status of a connection, as told by pgconn.
const (
	statusInTransaction = 'T'
	statusIdle          = 'I'
	statusFailed        = 'E'
)

// check tells whether the transaction is fit to be committed.
func (tx *lentTx) check() error {
	switch {
	case tx.misused:
		return errTxControl
	case tx.Conn().IsClosed():
		return errors.New("the connection was lost")
	case tx.Conn().PgConn().IsBusy():
		return errTxBusy
	}
	switch tx.Conn().PgConn().TxStatus() {
	case statusInTransaction:
		return nil
	case statusFailed:
		return errTxFailed
	default:
		return errTxEnded
	}
}
