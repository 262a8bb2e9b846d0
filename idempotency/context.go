package idempotency

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// FenceFrom returns the fencing token of the lease under which the handler with
// this context runs: to be stored with the handler's writes elsewhere, and
// compared there.
func FenceFrom(ctx context.Context) (int64, bool) {
	lease, ok := storage.LeaseFrom(ctx)
	return lease.Fence, ok
}

type transientError struct{ error }

// Unwrap returns the handler's error.
func (e transientError) Unwrap() error { return e.error }

// Transient wraps a handler's error: the message is not to blame, but something
// the handler needs, such as a database out of service. The message is tried
// again, after a wait growing from Options.FirstRetry to LastRetry, until it
// succeeds or fails otherwise: such an attempt brings no dead letter nearer.
// Transient returns nil for nil. The text of the error stays as is. Terminal
// outdoes it. An error of PostgreSQL caused by a pooler that lost prepared
// statements needs no wrapping.
func Transient(err error) error {
	if err == nil {
		return nil
	}
	return transientError{err}
}

// isTransient tells whether the error was wrapped by Transient, at any
// depth, or comes from a pooler, and was not wrapped by Terminal.
func isTransient(err error) bool {
	var e transientError
	return (errors.As(err, &e) || pgsql.LostStatement(err)) && !isTerminal(err)
}

// advised adds the remedy to a handler's error that comes from a pooler.
func advised(err error) error {
	if !pgsql.LostStatement(err) {
		return err
	}
	return fmt.Errorf("%w (%s)", err, pgsql.PoolerRemedy)
}

type terminalError struct{ error }

// Unwrap returns the handler's error.
func (e terminalError) Unwrap() error { return e.error }

// Terminal wraps a handler's error: trying again would not help. Terminal
// returns nil for nil. The text of the error stays as is.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return terminalError{err}
}

// isTerminal tells whether the error was wrapped by Terminal, at any depth.
func isTerminal(err error) bool {
	var t terminalError
	return errors.As(err, &t)
}
