package idempotency

import "errors"

// The errors that only a Runner returns, wrapped, beside those of its store and
// of the handler.
var (
	// ErrInProgress: somebody else holds the lease.
	ErrInProgress = errors.New("message is being handled elsewhere")
	// ErrNotDue: the last attempt failed and the next is not due.
	ErrNotDue = errors.New("next attempt is not due")
	// ErrHandlerTimeout: the handler took longer than HandlerTimeout. It is the
	// cause of its context's end, and part of the attempt's error.
	ErrHandlerTimeout = errors.New("the handler took longer than it may")
	// ErrExhausted: the message failed, or vanished, as often as it may.
	ErrExhausted = errors.New("attempts exhausted")
)
