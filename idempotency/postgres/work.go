package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/sqlstate"
)

const (
	// lockedWait is how long to wait before asking again for a key whose handler
	// runs beyond its lease. Nobody knows how long it will run.
	lockedWait = time.Second
	// rollbackTimeout bounds a rollback.
	rollbackTimeout = 10 * time.Second
)

// work is what one message takes: a connection for its claim and its
// transaction. The fence makes the effect happen once: the completion changes
// the record only if it is still that of this claim, and holds its lock until
// the commit. The advisory lock only saves others useless work.
type work struct {
	*Transactional
	conn  *pgxpool.Conn // nil once released
	lease storage.Lease
	lock  int64
	tx    *lentTx // nil before Begin
}

var _ storage.Work = (*work)(nil)

// Claim implements storage.Work. The attempt is counted in a transaction of
// its own, so that one that takes the process down counts too. After a claim
// that was not answered, the next is made on another connection.
func (w *work) Claim(ctx context.Context, key storage.Key, req storage.ClaimRequest) (claim storage.Claim, err error) {
	if w.conn == nil {
		if w.conn, err = w.pool.Acquire(ctx); err != nil {
			return storage.Claim{}, err
		}
	}
	w.lock = lockHash(handlerLock, w.table, key)
	claim, locked, err := w.claim(ctx, w.conn, key, req, &w.lock)
	switch {
	case !storage.Answered(err):
		w.giveBack()
	case locked:
		claim = storage.Claim{Outcome: storage.InProgress, Wait: lockedWait, Layer: storage.LayerStore}
	}
	w.lease = claim.Lease
	return claim, err
}

// Begin implements storage.Work.
func (w *work) Begin(ctx context.Context) (context.Context, error) {
	inner, err := w.conn.BeginTx(ctx, pgx.TxOptions{
		BeginQuery: fmt.Sprintf("%s; select pg_try_advisory_xact_lock(%d)", w.begin, w.lock),
	})
	if err != nil {
		return nil, err
	}
	w.tx = &lentTx{Tx: inner}
	return context.WithValue(ctx, txKey{}, pgx.Tx(w.tx)), nil
}

// Commit implements storage.Work.
func (w *work) Commit(ctx context.Context, result []byte, retention time.Duration) error {
	if err := w.tx.check(); err != nil {
		return err
	}
	if err := w.checkCompletion(w.lease, result, retention); err != nil {
		return err
	}
	l := w.lease
	tag, err := w.tx.Tx.Exec(ctx, w.sql(l.Key).complete, l.Key.Scope, l.Key.ID, l.Owner, l.Fence, result, micros(retention))
	if err != nil {
		return explain(err)
	}
	if tag.RowsAffected() != 1 {
		return storage.ErrLeaseLost
	}
	if err = w.tx.Tx.Commit(ctx); err != nil && !rolledBack(err) {
		return fmt.Errorf("%w: %w", storage.ErrInDoubt, err)
	}
	return err
}

// Release implements storage.Work. A connection that cannot roll back is
// closed, to the same end.
func (w *work) Release(ctx context.Context) {
	if w.conn != nil && w.tx != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = w.tx.Tx.Rollback(ctx) // an error if it has ended, or see above
	}
	w.giveBack()
}

func (w *work) giveBack() {
	if w.conn != nil {
		w.conn.Release()
		w.conn = nil
	}
}

// rolledBack reports whether a commit's error means that nothing was committed.
// A server that is shutting down may send such an error after it has committed.
func rolledBack(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return true
	}
	const connection, intervention = "08", "57" // classes
	code := sqlstate.Of(err)
	return code != "" && !strings.HasPrefix(code, connection) && !strings.HasPrefix(code, intervention) &&
		code != pgerrcode.StatementCompletionUnknown
}
