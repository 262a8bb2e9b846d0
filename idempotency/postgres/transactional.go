package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
)

// Defaults of TransactionalOptions.
const (
	DefaultLease          = 10 * time.Second
	DefaultRetention      = 7 * 24 * time.Hour
	DefaultMaxAttempts    = 10
	DefaultBackoffFirst   = 100 * time.Millisecond
	DefaultBackoffLongest = time.Minute
	DefaultIdleTimeout    = time.Minute
)

const (
	// settleTimeout bounds what is done after the handler, whose context may
	// have ended: completion and commit, or the record of a failure.
	settleTimeout = 10 * time.Second
	// lockedWait is how long not to ask again for a key whose handler runs
	// beyond its lease: for how long it will, nobody knows.
	lockedWait = time.Second
)

// TransactionalOptions are those of NewTransactional. The zero value is valid.
type TransactionalOptions struct {
	// StoreOptions are those of the table.
	StoreOptions
	// Lease is for how long a claim keeps others away until its transaction has
	// begun; from then on the transaction does, for as long as it lasts. It is
	// also for how long a message waits after a crash. DefaultLease if 0.
	Lease time.Duration
	// Retention is how long a key is remembered after its last change: longer
	// than its message may be delivered again. DefaultRetention if 0.
	Retention time.Duration
	// MaxAttempts is after how many attempts a message is given up;
	// DefaultMaxAttempts if 0, without end if negative.
	MaxAttempts int
	// BackoffFirst is the wait after the first failed attempt; it doubles from
	// attempt to attempt up to BackoffLongest. DefaultBackoffFirst and
	// DefaultBackoffLongest if 0.
	BackoffFirst, BackoffLongest time.Duration
	// DeadLetter makes a dead letter durable before it returns nil; only then
	// is the key given up. It may be called again for the same message. Without
	// it, nothing is ever given up.
	DeadLetter func(ctx context.Context, letter idempotency.DeadLetter) error
	// Isolation of the transaction; the server's default if empty. Serialization
	// failures are failed attempts.
	Isolation pgx.TxIsoLevel
	// IdleTimeout is PostgreSQL's idle_in_transaction_session_timeout in the
	// transaction: when a client's machine vanishes, the server frees the key,
	// and everything else that was locked, after it. It also ends a handler that
	// does without the database for so long. DefaultIdleTimeout if 0; negative
	// leaves the server's own.
	IdleTimeout time.Duration
	// Observer is told what happens.
	Observer idempotency.Observer
}

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
// the business tables. The pool stays the caller's; handlers must not wait for
// another of its connections, or all of them may wait for each other.
func NewTransactional(pool *pgxpool.Pool, o TransactionalOptions) (*Transactional, error) {
	store, err := NewStore(pool, o.StoreOptions)
	if err != nil {
		return nil, err
	}
	setDefault(&o.Lease, DefaultLease)
	setDefault(&o.Retention, DefaultRetention)
	setDefault(&o.MaxAttempts, DefaultMaxAttempts)
	setDefault(&o.BackoffFirst, DefaultBackoffFirst)
	setDefault(&o.BackoffLongest, max(o.BackoffFirst, DefaultBackoffLongest))
	setDefault(&o.IdleTimeout, DefaultIdleTimeout)
	if err := o.validate(); err != nil {
		return nil, err
	}
	begin := "begin"
	if o.Isolation != "" {
		begin += " isolation level " + string(o.Isolation)
	}
	if o.IdleTimeout > 0 {
		begin += fmt.Sprintf("; set local idle_in_transaction_session_timeout = %d", max(1, o.IdleTimeout.Milliseconds()))
	}
	waits := backoff.Range{First: o.BackoffFirst, Longest: o.BackoffLongest}
	return &Transactional{pool: pool, store: store, options: o, begin: begin, waits: waits}, nil
}

func setDefault[V comparable](field *V, value V) {
	if *field == *new(V) {
		*field = value
	}
}

func (o *TransactionalOptions) validate() error {
	if err := idempotency.CheckLease(o.Lease); err != nil {
		return err
	}
	switch {
	case o.Retention < o.Lease:
		return fmt.Errorf("Retention, %s, is shorter than Lease, %s", o.Retention, o.Lease)
	case o.BackoffFirst < 0 || o.BackoffLongest < o.BackoffFirst:
		return fmt.Errorf("want 0 < BackoffFirst (%s) <= BackoffLongest (%s)", o.BackoffFirst, o.BackoffLongest)
	}
	switch o.Isolation {
	case "", pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable:
		return nil
	default:
		return fmt.Errorf("Isolation is %q, which is no isolation level", o.Isolation)
	}
}

// Store returns the runner's store, for its Check, Sweep and Operator.
func (x *Transactional) Store() *Store { return x.store }

// Run implements idempotency.Runner. A transaction's outcome is unknown when the
// connection is lost during the commit; Run then asks for it, and if it cannot
// be told, the result is Unavailable: the next Run finds out.
func (x *Transactional) Run(ctx context.Context, m idempotency.Message, handler idempotency.Handler) (idempotency.Result, error) {
	begun := time.Now()
	result, err := x.run(ctx, m, handler)
	if x.options.Observer.Run != nil {
		x.options.Observer.Run(m, result, err, time.Since(begun))
	}
	return result, err
}

func (x *Transactional) run(ctx context.Context, m idempotency.Message, handler idempotency.Handler) (idempotency.Result, error) {
	// One connection for claim and transaction: whoever waits for one holds no
	// lease meanwhile.
	conn, err := x.pool.Acquire(ctx)
	if err != nil {
		return unavailable(err)
	}
	a := &attempt{Transactional: x, message: m, conn: conn, lock: x.lockKey(m.Key)}
	defer a.release()
	claim, locked, err := a.claim(ctx)
	switch {
	case err != nil && idempotency.Answered(err): // the message is at fault
		return idempotency.Result{Disposition: idempotency.Retry}, err
	case err != nil:
		return unavailable(err)
	case locked:
		return idempotency.Result{Disposition: idempotency.Elsewhere, Wait: lockedWait}, fmt.Errorf("%s: %w", m.Key, idempotency.ErrInProgress)
	}
	result := idempotency.Result{Layer: claim.Layer, Wait: claim.Wait}
	switch claim.Outcome {
	case idempotency.Duplicate:
		result.Disposition, result.Value = idempotency.Skipped, claim.Result
	case idempotency.GivenUp:
		result.Disposition = idempotency.DeadLettered
	case idempotency.InProgress:
		result.Disposition, err = idempotency.Elsewhere, fmt.Errorf("%s: %w", m.Key, idempotency.ErrInProgress)
	case idempotency.NotDue:
		result.Disposition, err = idempotency.Retry, fmt.Errorf("%s: %w: %s", m.Key, idempotency.ErrNotDue, claim.Reason)
	case idempotency.Claimed:
		result, err = a.attempt(ctx, claim, handler)
		result.Layer = claim.Layer
	}
	return result, err
}

func unavailable(err error) (idempotency.Result, error) {
	return idempotency.Result{Disposition: idempotency.Unavailable}, err
}

// lockKey returns the advisory lock of a key: 64 bits of a hash, as that is all
// there is. Two keys with one lock cannot run at the same time, no more: one is
// Elsewhere meanwhile. With a million running at once, the odds are one in ten
// million.
func (x *Transactional) lockKey(k idempotency.Key) int64 {
	sum := sha256.Sum256([]byte("idempotency\x00" + x.store.table.String() + "\x00" + k.Scope + "\x00" + k.ID))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// exhausted tells whether so many attempts are more than there may be.
func (x *Transactional) exhausted(attempts int) bool {
	return x.options.DeadLetter != nil && x.options.MaxAttempts > 0 && attempts > x.options.MaxAttempts
}

// called reports a call of the store.
func (x *Transactional) called(op idempotency.Operation, begun time.Time, err error) {
	if x.options.Observer.StoreCall != nil {
		x.options.Observer.StoreCall(op, time.Since(begun), err)
	}
}

// errExhausted says why a message is given up that was never seen to fail.
func errExhausted(reason string) error {
	if reason == "" {
		return idempotency.ErrExhausted
	}
	return errors.Join(idempotency.ErrExhausted, errors.New(reason))
}
