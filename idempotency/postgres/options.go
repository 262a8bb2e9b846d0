package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
)

// Defaults of TransactionalOptions; the others are package idempotency's.
const (
	DefaultLease       = 10 * time.Second
	DefaultTimeout     = 10 * time.Second
	DefaultIdleTimeout = time.Minute
)

// lockedWait is how long to wait before asking again for a key whose handler
// runs beyond its lease. Nobody knows how long it will run.
const lockedWait = time.Second

// TransactionalOptions are those of NewTransactional. Where they are named like
// those of idempotency.Options, they mean the same.
type TransactionalOptions struct {
	// StoreOptions are those of the table.
	StoreOptions
	// Lease is how long a claim keeps others away until its transaction has
	// begun. From then on the transaction keeps them away. It is also how long
	// a message waits after a crash. DefaultLease if 0.
	Lease time.Duration
	// Timeout bounds what follows the handler, whose context may have ended:
	// completion and commit, or the record of a failure. DefaultTimeout if 0.
	Timeout time.Duration
	// HandlerTimeout bounds a call of the handler, as in idempotency.Options.
	HandlerTimeout time.Duration
	// Retention is how long a key is remembered after its last change: longer
	// than its message may be delivered again. idempotency.DefaultRetention if 0.
	Retention time.Duration
	// MaxAttempts is how often a message may fail before it is given up;
	// idempotency.DefaultMaxAttempts if 0, no bound if negative.
	MaxAttempts int
	// MaxVanished is how many attempts at a message may end without an outcome,
	// because their process died, before it is given up;
	// idempotency.DefaultMaxVanished if 0, no bound if negative, or if
	// MaxAttempts is.
	MaxVanished int
	// FirstRetry is the wait after the first failed attempt; it doubles up to
	// LastRetry and is drawn from the upper half. idempotency.DefaultFirstRetry
	// and DefaultLastRetry if 0.
	FirstRetry, LastRetry time.Duration
	// DeadLetter makes a message that is given up durable elsewhere; nil means
	// that it is, and only then the key is given up. It may be called again for
	// the same message. Required unless MaxAttempts is negative: without it
	// nothing is given up, a terminal error is retried like any other.
	DeadLetter func(ctx context.Context, d idempotency.DeadLetter) error
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

func (o TransactionalOptions) withDefaults() TransactionalOptions {
	o.Lease = cmp.Or(o.Lease, DefaultLease)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Retention = cmp.Or(o.Retention, idempotency.DefaultRetention)
	o.MaxAttempts = cmp.Or(o.MaxAttempts, idempotency.DefaultMaxAttempts)
	o.MaxVanished = cmp.Or(o.MaxVanished, idempotency.DefaultMaxVanished)
	o.FirstRetry = cmp.Or(o.FirstRetry, idempotency.DefaultFirstRetry)
	o.LastRetry = cmp.Or(o.LastRetry, max(o.FirstRetry, idempotency.DefaultLastRetry))
	o.IdleTimeout = cmp.Or(o.IdleTimeout, DefaultIdleTimeout)
	return o
}

// validate names what cannot work.
func (o TransactionalOptions) validate() error {
	for name, d := range map[string]time.Duration{
		"Lease": o.Lease, "Timeout": o.Timeout, "Retention": o.Retention, "FirstRetry": o.FirstRetry, "LastRetry": o.LastRetry,
	} {
		if d < idempotency.MinLease {
			return fmt.Errorf("%s is %s: it must be at least %s", name, d, idempotency.MinLease)
		}
	}
	switch {
	case o.HandlerTimeout < 0:
		return fmt.Errorf("HandlerTimeout, %s, is negative", o.HandlerTimeout)
	case o.LastRetry < o.FirstRetry:
		return fmt.Errorf("LastRetry, %s, is shorter than FirstRetry, %s", o.LastRetry, o.FirstRetry)
	case o.Retention < o.Lease || o.Retention <= o.LastRetry:
		return fmt.Errorf("Retention, %s, does not exceed Lease, %s, and LastRetry, %s", o.Retention, o.Lease, o.LastRetry)
	case o.DeadLetter == nil && o.MaxAttempts > 0:
		return errors.New("DeadLetter is missing: give one, or a negative MaxAttempts to give up no message")
	}
	switch o.Isolation {
	case "", pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable:
		return nil
	default:
		return fmt.Errorf("Isolation is %q, which is no isolation level", o.Isolation)
	}
}
