package idempotency

import "errors"

// The errors that a Store and a Runner return, wrapped. Any other error of a
// Store means that it could not be asked, or that its answer is unknown.
var (
	// ErrBadKey: the key cannot be stored; asking again does not help.
	ErrBadKey = errors.New("bad idempotency key")
	// ErrMismatch: the key is known with another payload. Either two messages
	// share an id, or the payload was changed on the way; neither the stored
	// result nor a second run would be right.
	ErrMismatch = errors.New("idempotency key is known with another payload")
	// ErrLeaseLost: the record is no longer the caller's: its lease ran out and
	// somebody else claimed it, or an operator released or purged it.
	ErrLeaseLost = errors.New("lease lost")
	// ErrResultTooLarge: the store cannot hold the result. Nothing was changed.
	ErrResultTooLarge = errors.New("result too large for the store")
	// ErrCompleted: the operator's request does not apply to a completed key.
	ErrCompleted = errors.New("key is completed")
)
