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

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/internal/recovered"
	"github.com/cdc-outbox/cdc-outbox/internal/sqlstate"
	"github.com/cdc-outbox/cdc-outbox/internal/stuck"
)

// attempt is one Run. The fence makes the effect happen once: the completion
// changes the record only if it is still that of this claim, and holds its lock
// until the commit. The advisory lock only saves others useless work.
type attempt struct {
	*Transactional
	message idempotency.Message
	conn    *pgxpool.Conn // nil once released
	lock    int64
	claimed idempotency.Claim
	ran     bool // the handler was called
	// pending is what an earlier Run left, or what this one leaves: a claim in
	// doubt, or that the message is given up.
	pending *idempotency.Pending
}

// release gives the connection back, before anything else is asked of the pool.
func (a *attempt) release() {
	if a.conn != nil {
		a.conn.Release()
		a.conn = nil
	}
}

// claimTries is how often a claim is asked for: the second time, of another
// connection, after one whose answer was lost. By the same owner that is the
// same claim.
const claimTries = 2

// claim counts the attempt in a transaction of its own, so that an attempt that
// takes the process down counts too. It uses the handler's connection: so a Run
// that waits for a connection holds no lease. locked reports that the key could
// not be claimed because its handler runs.
func (a *attempt) claim(ctx context.Context) (locked bool, err error) {
	req := idempotency.ClaimRequest{
		Owner: a.pending.Claiming(), Fingerprint: a.message.Fingerprint,
		Lease: a.options.Lease, Retention: a.options.Retention,
	}
	defer func() { a.pending = a.pending.Claimed(a.message.Key, req.Owner, err) }()
	for range claimTries {
		if a.conn, err = a.pool.Acquire(ctx); err != nil {
			return false, err
		}
		begun := time.Now()
		a.claimed, locked, err = a.store.claim(ctx, a.conn, a.message.Key, req, &a.lock)
		a.called(idempotency.OpClaim, begun, err)
		if idempotency.Answered(err) {
			break
		}
		a.release()
	}
	if err == nil && !locked && a.options.Observer.Claim != nil {
		a.options.Observer.Claim(a.message, a.claimed)
	}
	return locked, err
}

// errAlone is the error of a Run that is to be made alone.
var errAlone = errors.New("the last attempt vanished: the message is run alone")

// standAside gives the claim back, unused.
func (a *attempt) standAside(ctx context.Context) (idempotency.Result, error) {
	a.release()
	err := a.fail(ctx, idempotency.Failure{Unrun: true, Reason: a.claimed.Reason, Retention: a.options.Retention})
	if err != nil {
		a.pending = a.pending.Claimed(a.message.Key, a.claimed.Lease.Owner, err)
		return a.unsettled(nil, err, nil)
	}
	return a.result(idempotency.Retry, nil), errAlone
}

// run runs the handler in a transaction and settles the key.
func (a *attempt) run(ctx context.Context, handler idempotency.Handler) (idempotency.Result, error) {
	if a.pending.GivenUp() && a.options.DeadLetter != nil {
		a.release()
		return a.bury(ctx, a.pending.Reason)
	}
	if err := a.exhausted(); err != nil {
		a.release()
		return a.bury(ctx, err)
	}
	inner, err := a.conn.BeginTx(ctx, pgx.TxOptions{
		BeginQuery: fmt.Sprintf("%s; select pg_try_advisory_xact_lock(%d)", a.begin, a.lock),
	})
	if err != nil {
		a.release()
		return a.interrupted(ctx, a.options.FirstRetry, fmt.Errorf("begin: %w", err))
	}
	tx := &lentTx{Tx: inner}
	defer a.rollback(ctx, inner) // for a handler that ends its goroutine
	a.ran = true
	value, err := a.call(context.WithValue(idempotency.ContextWithLease(ctx, a.claimed.Lease), txKey{}, pgx.Tx(tx)), handler)
	if err == nil {
		err = tx.check()
	}
	if err != nil {
		a.rollback(ctx, inner)
		return a.failed(ctx, err)
	}
	return a.commit(ctx, inner, value)
}

// stuckAfter is how long a handler may go on after its context has ended before
// it counts as stuck.
const stuckAfter = time.Second

// call calls the handler, and tells if it takes longer than it may.
func (a *attempt) call(ctx context.Context, handler idempotency.Handler) (value []byte, err error) {
	if a.options.HandlerTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, a.options.HandlerTimeout, idempotency.ErrHandlerTimeout)
		defer cancel()
	}
	stop := stuck.Watch(ctx, stuckAfter, func(stuck bool) {
		if a.options.Observer.HandlerStuck != nil {
			a.options.Observer.HandlerStuck(a.message, stuck)
		}
	})
	defer stop()
	err = recovered.Call(func() (err error) {
		value, err = handler(ctx)
		return err
	})
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, idempotency.ErrHandlerTimeout) {
		err = fmt.Errorf("%w, %s: %w", cause, a.options.HandlerTimeout, err)
	}
	return value, err
}

// commit completes the key and commits.
func (a *attempt) commit(ctx context.Context, tx pgx.Tx, value []byte) (idempotency.Result, error) {
	settleCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.options.Timeout)
	defer cancel()
	begun := time.Now()
	completed, err := a.complete(settleCtx, tx, value)
	if err != nil || !completed {
		a.called(idempotency.OpComplete, begun, err)
		a.rollback(ctx, tx)
		if err == nil {
			return a.unsettled(value, fmt.Errorf("complete key: %w", idempotency.ErrLeaseLost), nil)
		}
		return a.failed(ctx, fmt.Errorf("complete key: %w", err))
	}
	err = tx.Commit(settleCtx)
	a.called(idempotency.OpComplete, begun, err)
	a.release()
	switch {
	case err == nil:
		return a.result(idempotency.Handled, value), nil
	case rolledBack(err):
		return a.failed(ctx, fmt.Errorf("commit: %w", err))
	default:
		return a.doubted(ctx, value, fmt.Errorf("commit: %w", err))
	}
}

// complete changes the record in the transaction, if it still is this claim's.
func (a *attempt) complete(ctx context.Context, tx pgx.Tx, value []byte) (bool, error) {
	if size := len(value); size > a.store.options.MaxResultBytes {
		value = nil
		if a.options.Observer.ResultDropped != nil {
			a.options.Observer.ResultDropped(a.message, size)
		}
	}
	l := a.claimed.Lease
	tag, err := tx.Exec(ctx, a.store.sql(l.Key).complete, l.Key.Scope, l.Key.ID, l.Owner, l.Fence,
		value, micros(a.options.Retention))
	return tag.RowsAffected() == 1, err
}

// rollback ends the transaction, unless it has ended, and gives the connection
// back.
func (a *attempt) rollback(ctx context.Context, tx pgx.Tx) {
	if a.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.options.Timeout)
	defer cancel()
	_ = tx.Rollback(ctx) // a connection that cannot even do that is closed, to the same end
	a.release()
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

// result is that of an attempt.
func (a *attempt) result(d idempotency.Disposition, value []byte) idempotency.Result {
	r := idempotency.Result{Disposition: d, Value: value}
	if a.ran {
		r.Attempt = a.claimed.Attempts
	}
	return r
}
