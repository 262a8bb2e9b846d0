package storage

import "errors"

// The errors a Store returns, wrapped. Any other error means a store out of
// reach, or an unknown answer.
var (
	// ErrBadKey: the key cannot be stored; asking again does not help.
	ErrBadKey = errors.New("bad idempotency key")
	// ErrMismatch: the key is known with another payload. Either two messages
	// share an id, or the payload was changed on the way; neither the stored
	// result nor a second run would be right.
	ErrMismatch = errors.New("idempotency key is known with another payload")
	// ErrBadRequest: an argument other than the key breaks the contract. A mistake
	// in the program; nothing was changed.
	ErrBadRequest = errors.New("bad request to the idempotency store")
	// ErrLeaseLost: the record does not belong to the caller any more: the lease
	// ran out and somebody else claimed the key, an operator released or purged
	// the record, or the record was forgotten.
	ErrLeaseLost = errors.New("lease lost")
	// ErrResultTooLarge: the store cannot hold the result. The record is
	// unchanged.
	ErrResultTooLarge = errors.New("result too large for the store")
	// ErrCompleted: the operator's request does not apply to a completed key.
	ErrCompleted = errors.New("key is completed")
	// ErrBusy: what a message takes (Transactor.Reserve) was not free in time, as
	// others had it all. No claim was made.
	ErrBusy = errors.New("nothing is free for the message")
	// ErrInDoubt: a Transactor's commit was not answered.
	ErrInDoubt = errors.New("whether the transaction is committed is not known")
	// ErrEscaped: the handler ended a Transactor's transaction by itself. The
	// writes may be committed although the key is not completed, so each further
	// attempt would repeat them.
	ErrEscaped = errors.New("the handler ended the transaction by itself")
)

// The reasons, wrapped, for which a Processor gives a message up, fails an
// attempt, or can do neither, beside ErrBadKey, ErrMismatch, ErrEscaped and the
// handler's own error.
var (
	// ErrHandlerTimeout: the handler took too long: the cause of the context's
	// end, and part of the attempt's error.
	ErrHandlerTimeout = errors.New("the handler took longer than it may")
	// ErrExhausted: the message reached the limit of failed or vanished attempts.
	ErrExhausted = errors.New("attempts exhausted")
	// ErrClosed: the Run began after the Processor's Close. Nothing was called.
	ErrClosed = errors.New("the processor is closed")
	// ErrDeadLetter: the message's dead letter could not be kept. The message
	// waits until it is.
	ErrDeadLetter = errors.New("keep dead letter")
)

// Answered tells whether a store's error, or nil, is an answer: what it says
// about the key is certain. Otherwise the store was out of reach, or the
// outcome is unknown.
func Answered(err error) bool {
	if err == nil {
		return true
	}
	for _, answer := range []error{ErrBadKey, ErrBadRequest, ErrMismatch, ErrLeaseLost, ErrResultTooLarge, ErrCompleted} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}
