package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/ahead"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

const (
	// lockedWait is how long to wait before asking again for a key whose handler
	// runs beyond the lease. The end of the run is unknown.
	lockedWait = time.Second
	// rollbackTimeout bounds a rollback.
	rollbackTimeout = 10 * time.Second
)

// handlerSQL is the first of the handler's transaction: it keeps others away,
// sets the IdleTimeout, and tells whether each statement of the handler sees
// everything committed before it.
const handlerSQL = `SELECT current_setting('transaction_isolation') LIKE 'read %', pg_try_advisory_xact_lock($1::bigint),
	CASE WHEN $2::text <> '' THEN set_config('idle_in_transaction_session_timeout', $2::text, true) END`

// work is a message's connection, for the claim and the transaction. The fence
// makes the effect happen once: the completion changes the record only if still
// of the same claim, and holds the lock until the commit. The advisory lock
// only saves others useless work.
type work struct {
	*Transactional
	conn  *pgxpool.Conn // nil once released
	lease storage.Lease
	lock  int64
	tx    *lentTx // nil before Begin
	lax   bool    // the transaction's isolation is read committed
	row   int     // messages with the connection in a row
	first bool    // the message's first attempt
}

var _ storage.Work = (*work)(nil)

// Claim implements storage.Work. The attempt is counted in a separate
// transaction, so that an attempt taking the process down counts, too. After an
// unanswered claim, the next is made on another connection.
func (w *work) Claim(ctx context.Context, key storage.Key, req storage.ClaimRequest) (claim storage.Claim, err error) {
	if w.conn == nil {
		if w.conn, err = w.pool.Acquire(ctx); err != nil {
			return storage.Claim{}, err
		}
	}
	w.lock = lockHash(handlerLock, w.table, key)
	claim, locked, err := w.claim(ctx, func(sql string, args []any, a *claimAnswer) error {
		return w.ask(ctx, key, sql, args, a)
	}, key, req, &w.lock)
	switch {
	case !storage.Answered(err):
		w.Release(ctx)
	case locked:
		claim = storage.Claim{Outcome: storage.InProgress, Wait: lockedWait, Layer: storage.LayerStore}
	}
	w.lease = claim.Lease
	w.first = claim.Outcome == storage.Claimed && claim.Attempts == 1
	w.fresh.Store(w.first)
	return claim, err
}

// ask claims the key by the statement. A key that may be new is claimed by the
// statement for new keys; behind, in the same round trip, the handler's
// transaction begins.
func (w *work) ask(ctx context.Context, key storage.Key, sql string, args []any, a *claimAnswer) error {
	if w.tx == nil && w.hasty(ctx) {
		var batch pgx.Batch
		batch.BeginTx(pgx.TxOptions{BeginQuery: "begin"})
		batch.Queue(w.sql(key).claimFirst, args...).QueryRow(a.scanFirst)
		for _, statement := range w.chain {
			batch.Queue(statement)
		}
		if err := w.send(ctx, &batch); err == nil {
			return nil
		} else if !conflicted(err) {
			return err
		}
	}
	if w.tx != nil {
		if err := w.tx.Tx.Rollback(ctx); err != nil {
			return err
		}
		w.tx = nil
	}
	return a.scan(w.conn.QueryRow(ctx, sql, args...))
}

// Begin implements storage.Work.
func (w *work) Begin(ctx context.Context) (context.Context, error) {
	if w.tx == nil {
		var batch pgx.Batch
		batch.BeginTx(pgx.TxOptions{BeginQuery: w.begin})
		if err := w.send(ctx, &batch); err != nil {
			return nil, err
		}
	}
	return context.WithValue(ctx, txKey{}, pgx.Tx(w.tx)), nil
}

// send sends a batch beginning the handler's transaction.
func (w *work) send(ctx context.Context, batch *pgx.Batch) error {
	batch.Queue(handlerSQL, w.lock, w.idle).QueryRow(func(row pgx.Row) error { return row.Scan(&w.lax, nil, nil) })
	results := w.conn.SendBatch(ctx, batch)
	err := results.Close()
	w.tx = lend(results.Tx())
	return err
}

// mostInARow bounds the messages in a row on a connection: the pool does not see
// the connection meanwhile.
const mostInARow = 32

var _ ahead.Work = (*work)(nil)

// CommitAndClaim implements ahead.Work. The next message is claimed in the
// committing transaction, so both take a single commit; and so with the role, the
// search_path and the timeouts set locally by the handler. The claim waits for no
// other user of the row, but for a lock of the table. If the claim fails, so does
// the commit. A message tried again is committed without a
// claim.
func (w *work) CommitAndClaim(ctx context.Context, result []byte, retention time.Duration, key storage.Key, req storage.ClaimRequest) (claim storage.Claim, err error) {
	if w.row++; w.row >= mostInARow || !w.first || !w.ahead || !w.lax || !w.spare() || !w.hasty(ctx) || req.Validate() != nil {
		return claim, w.Commit(ctx, result, retention)
	}
	lock := lockHash(handlerLock, w.table, key)
	turn := lockHash(claimLock, w.table, key)
	var batch pgx.Batch
	batch.Queue(w.sql(key).claimNext, key.Scope, key.ID, string(req.Fingerprint), req.Owner, micros(req.Lease), micros(req.Retention),
		int32(turn>>32), int32(turn), lock)
	for _, statement := range w.chain {
		batch.Queue(statement)
	}
	batch.Queue(handlerSQL, lock, w.idle)
	var a claimAnswer
	granted := false
	err = w.commit(ctx, result, retention, &batch, func(row pgx.Row) error {
		err := a.scanFirst(row)
		granted = err == nil
		if granted || errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return fmt.Errorf("%w: %w", ahead.ErrClaim, err)
	})
	w.fresh.Store(granted)
	if errors.Is(err, storage.ErrInDoubt) && !errors.Is(err, ahead.ErrClaim) {
		err = fmt.Errorf("%w: %w", ahead.ErrClaim, err) // the server answers only after the whole
	}
	if errors.Is(err, ahead.ErrClaim) {
		w.trouble() // lasting trouble could cost each message an attempt
	}
	if tx := lend(w.tx.Tx); err == nil && granted && tx.check() == nil {
		claim = a.granted(key, req.Owner)
		w.lease, w.lock, w.tx = claim.Lease, lock, tx
	}
	return claim, err
}

// Commit implements storage.Work.
func (w *work) Commit(ctx context.Context, result []byte, retention time.Duration) error {
	var batch pgx.Batch
	batch.Queue("commit")
	return w.commit(ctx, result, retention, &batch, nil)
}

// commit sends the completion together with the end of the transaction, with
// the commit in it. If the completion fails, or a statement before the commit,
// the server commits nothing. claim, if given, reads the answer to the first
// statement of the end.
func (w *work) commit(ctx context.Context, result []byte, retention time.Duration, end *pgx.Batch, claim func(pgx.Row) error) error {
	if err := w.tx.check(); err != nil {
		return err
	}
	if err := storage.CheckCompletion(w.lease, result, w.options.MaxResultBytes, retention); err != nil {
		return err
	}
	w.tx.over.Store(true)
	l := w.lease
	var batch pgx.Batch
	batch.Queue(w.sql(l.Key).completeOrFail, l.Key.Scope, l.Key.ID, l.Owner, l.Fence, result, micros(retention))
	batch.QueuedQueries = append(batch.QueuedQueries, end.QueuedQueries...)
	results := w.conn.SendBatch(ctx, &batch)
	_, err := results.Exec()
	if pgsql.State(err) == pgerrcode.InvalidTextRepresentation {
		err = storage.ErrLeaseLost
	}
	if err == nil && claim != nil {
		err = claim(results.QueryRow())
	}
	var commit pgconn.CommandTag
	if err == nil {
		commit, err = results.Exec()
	}
	if err == nil && commit.String() == "COMMIT" {
		_ = results.Close() // of the statements behind the commit, if any
		return nil
	}
	closeErr := results.Close()
	switch {
	case err == nil && closeErr == nil && commit.String() == "ROLLBACK":
		return pgx.ErrTxCommitRollback
	case err == nil:
		err = closeErr
	}
	if err != nil && !rolledBack(err) {
		return fmt.Errorf("%w: %w", storage.ErrInDoubt, err)
	}
	return explain(err)
}

// Release implements storage.Work. A connection unable to roll back is closed,
// to the same end.
func (w *work) Release(ctx context.Context) {
	if w.tx != nil {
		w.tx.over.Store(true)
	}
	if w.conn != nil && w.tx != nil && w.conn.Conn().PgConn().TxStatus() != statusIdle {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = w.tx.Tx.Rollback(ctx) // see above
	}
	w.tx = nil
	if w.conn != nil {
		if w.conn.Conn().IsClosed() {
			w.trouble()
		}
		w.conn.Release()
		w.conn = nil
	}
}

// rolledBack reports whether a commit's error means that nothing was committed.
// A server shutting down may send such an error after the commit.
func rolledBack(err error) bool {
	if errors.Is(err, storage.ErrLeaseLost) {
		return true
	}
	const connection, intervention = "08", "57" // classes
	code := pgsql.State(err)
	return code != "" && !strings.HasPrefix(code, connection) && !strings.HasPrefix(code, intervention) &&
		code != pgerrcode.StatementCompletionUnknown
}
