package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
)

// Transactional is an idempotency.Runner in whose handlers everything written
// through Tx commits together with the key's completion, or not at all.
//
// A Run takes one connection of the pool and four round trips beside the
// handler's: the claim, which counts the attempt and commits by itself; begin,
// with the lock; completion; commit.
type Transactional struct {
	pool    *pgxpool.Pool
	store   *Store
	options TransactionalOptions
	begin   string // the SQL before the lock
	waits   backoff.Range
}

var _ idempotency.Runner = (*Transactional)(nil)

// NewTransactional returns a runner on a table that DDL made, in the database of
// the business tables, or an error that names the option that cannot work. The
// pool stays the caller's; handlers must not wait for another of its
// connections, or all of them may wait for each other.
func NewTransactional(pool *pgxpool.Pool, o TransactionalOptions) (*Transactional, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("configure runner: %w", err)
	}
	store, err := NewStore(pool, o.StoreOptions)
	if err != nil {
		return nil, err
	}
	begin := "begin"
	if o.Isolation != "" {
		begin += " isolation level " + string(o.Isolation)
	}
	if o.IdleTimeout > 0 {
		begin += fmt.Sprintf("; set local idle_in_transaction_session_timeout = %d", max(1, o.IdleTimeout.Milliseconds()))
	}
	waits := backoff.Range{First: o.FirstRetry, Longest: o.LastRetry}
	return &Transactional{pool: pool, store: store, options: o, begin: begin, waits: waits}, nil
}

// Store returns the runner's store, for its Check, Sweep and Operator.
func (x *Transactional) Store() *Store { return x.store }

// Retention returns how long settled keys are kept (TransactionalOptions.Retention).
func (x *Transactional) Retention() time.Duration { return x.options.Retention }

// Run implements idempotency.Runner; what becomes of a message is what becomes
// of it under an idempotency.Processor, except that Lost, too, leaves nothing
// behind in the database, and success is never Pending. A transaction's outcome
// is unknown when the connection is lost during the commit. Run then asks for
// it, and if it cannot be told, the result is Unavailable: the next Run finds
// out.
func (x *Transactional) Run(ctx context.Context, m idempotency.Message, handler idempotency.Handler) (idempotency.Result, error) {
	begun := time.Now()
	a := &attempt{Transactional: x, message: m, lock: x.lockKey(m.Key), pending: idempotency.PendingOn(ctx, m.Key)}
	result, err := x.run(ctx, a, handler)
	if !result.Done() && result.Disposition != idempotency.Lost {
		result.Pending = a.pending
	}
	if err != nil {
		err = fmt.Errorf("message %q: %w", m.Key, err)
	}
	if x.options.Observer.Run != nil {
		x.options.Observer.Run(m, result, err, time.Since(begun))
	}
	return result, err
}

func (x *Transactional) run(ctx context.Context, a *attempt, handler idempotency.Handler) (idempotency.Result, error) {
	defer a.release()
	locked, err := a.claim(ctx)
	switch {
	case errors.Is(err, idempotency.ErrMismatch), errors.Is(err, idempotency.ErrBadKey):
		a.release()
		return a.refuse(ctx, err)
	case err != nil:
		return idempotency.Result{Disposition: idempotency.Unavailable, Wait: x.waits.Wait(1)}, fmt.Errorf("claim key: %w", err)
	case locked:
		return idempotency.Result{Disposition: idempotency.Elsewhere, Wait: lockedWait}, idempotency.ErrInProgress
	}
	result := idempotency.Result{Layer: a.claimed.Layer, Wait: a.claimed.Wait}
	switch a.claimed.Outcome {
	case idempotency.Duplicate:
		result.Disposition, result.Value = idempotency.Skipped, a.claimed.Result
	case idempotency.GivenUp:
		result.Disposition, result.Reason = idempotency.DeadLettered, a.claimed.Reason
	case idempotency.InProgress:
		result.Disposition, err = idempotency.Elsewhere, idempotency.ErrInProgress
	case idempotency.NotDue:
		result.Disposition, err = idempotency.Retry, idempotency.ErrNotDue
	case idempotency.Claimed:
		result, err = a.run(ctx, handler)
		result.Layer = a.claimed.Layer
	}
	return result, err
}

// lockKey returns the advisory lock of a key's handler. Two keys with one lock
// cannot run at the same time, no more: one is Elsewhere meanwhile. With a
// million running at once, the odds are one in forty million.
func (x *Transactional) lockKey(k idempotency.Key) int64 {
	return lockHash(handlerLock, x.store.table, k)
}

// exhausted reports whether no attempt is left after so many.
func (x *Transactional) exhausted(attempts int) bool {
	return x.options.MaxAttempts > 0 && attempts >= x.options.MaxAttempts
}

// called reports a call of the store.
func (x *Transactional) called(op idempotency.Operation, begun time.Time, err error) {
	if x.options.Observer.StoreCall != nil {
		x.options.Observer.StoreCall(op, time.Since(begun), err)
	}
}
