package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/solo"
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
	gate    solo.Gate
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

// Maintain implements idempotency.Maintainer for the store.
func (x *Transactional) Maintain(ctx context.Context, report func(error)) {
	x.store.Maintain(ctx, report)
}

// Run implements idempotency.Runner; what becomes of a message is what becomes
// of it under an idempotency.Processor, except that Lost, too, leaves nothing
// behind in the database, and success is never Pending. A transaction's outcome
// is unknown when the connection is lost during the commit. Run then asks for
// it, and if it cannot be told, the result is Unavailable: the next Run finds
// out.
func (x *Transactional) Run(ctx context.Context, m idempotency.Message, handler idempotency.Handler) (idempotency.Result, error) {
	begun := time.Now()
	a := &attempt{Transactional: x, message: m, lock: x.lockKey(m.Key), pending: idempotency.PendingOn(ctx, m.Key)}
	result, err := x.together(ctx, a, handler)
	if errors.Is(err, errAlone) {
		result, err = x.alone(ctx, a, handler)
	}
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

// Refuse implements idempotency.Refuser, by TransactionalOptions.DeadLetter.
func (x *Transactional) Refuse(ctx context.Context, m idempotency.Message, reason error) (idempotency.Result, error) {
	a := &attempt{Transactional: x, message: m}
	return a.refuse(ctx, reason)
}

type insideKey struct{}

// together runs the message beside others.
func (x *Transactional) together(ctx context.Context, a *attempt, handler idempotency.Handler) (idempotency.Result, error) {
	if ctx.Value(insideKey{}) == x { // within a handler, which would wait for itself
		return x.run(ctx, a, handler, true)
	}
	leave, err := x.gate.Enter(ctx)
	if err != nil {
		return idempotency.Result{Disposition: idempotency.Retry}, err
	}
	defer leave()
	return x.run(context.WithValue(ctx, insideKey{}, x), a, handler, false)
}

// alone runs a message whose last attempt vanished, as idempotency.Processor
// does.
func (x *Transactional) alone(ctx context.Context, a *attempt, handler idempotency.Handler) (idempotency.Result, error) {
	leave, err := x.gate.EnterAlone(ctx, x.options.Timeout)
	if err != nil {
		return idempotency.Result{Disposition: idempotency.Retry}, err
	}
	defer leave()
	return x.run(context.WithValue(ctx, insideKey{}, x), a, handler, true)
}

func (x *Transactional) run(ctx context.Context, a *attempt, handler idempotency.Handler, alone bool) (idempotency.Result, error) {
	defer a.release()
	locked, err := a.claim(ctx)
	switch {
	case errors.Is(err, idempotency.ErrMismatch), errors.Is(err, idempotency.ErrBadKey):
		a.release()
		return a.refuse(ctx, err)
	case err != nil && idempotency.Answered(err): // a mistake in the program, about this message
		return idempotency.Result{Disposition: idempotency.Retry, Wait: x.waits.Wait(1)}, fmt.Errorf("claim key: %w", err)
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
		if a.claimed.Vanished > 0 && !alone && !a.pending.GivenUp() && a.exhausted() == nil {
			result, err = a.standAside(ctx)
		} else {
			result, err = a.run(ctx, handler)
		}
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

// exhausted returns an error if no attempt is left.
func (a *attempt) exhausted() error {
	return a.claimed.Exhausted(a.options.MaxAttempts, a.options.MaxVanished)
}

// called reports a call of the store.
func (x *Transactional) called(op idempotency.Operation, begun time.Time, err error) {
	if x.options.Observer.StoreCall != nil {
		x.options.Observer.StoreCall(op, time.Since(begun), err)
	}
}
