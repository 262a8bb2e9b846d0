package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
)

// failed settles an attempt that was rolled back because of err.
func (a *attempt) failed(ctx context.Context, err error) (idempotency.Result, error) {
	final := idempotency.IsTerminal(err) || errors.Is(err, ErrTxEnded)
	switch {
	case ctx.Err() != nil && !final:
		return a.interrupted(ctx, 0, err)
	case a.options.DeadLetter != nil && final, a.exhausted(a.claimed.Attempts + 1):
		return a.bury(ctx, err)
	}
	return a.again(ctx, err)
}

// again has the message tried again after a backoff.
func (a *attempt) again(ctx context.Context, err error) (idempotency.Result, error) {
	wait := a.waits.Wait(a.claimed.Attempts)
	result := a.result(idempotency.Retry, nil)
	result.Wait = wait
	return a.settled(ctx, result, err, idempotency.Failure{RetryAfter: wait, Reason: err.Error()})
}

// interrupted has the message tried again, uncounted: the attempt ended through
// no fault of it.
func (a *attempt) interrupted(ctx context.Context, wait time.Duration, err error) (idempotency.Result, error) {
	result := a.result(idempotency.Retry, nil)
	result.Wait = wait
	return a.settled(ctx, result, err, idempotency.Failure{Uncounted: true, RetryAfter: wait, Reason: err.Error()})
}

// bury gives the message up: the dead letter first, then the key.
func (a *attempt) bury(ctx context.Context, reason error) (idempotency.Result, error) {
	letter := idempotency.DeadLetter{Message: a.message, Attempts: a.claimed.Attempts, Reason: reason}
	if err := a.options.DeadLetter(ctx, letter); err != nil {
		return a.again(ctx, fmt.Errorf("write dead letter (%w): %w", reason, err))
	}
	return a.settled(ctx, a.result(idempotency.DeadLettered, nil), nil, idempotency.Failure{Terminal: true, Reason: reason.Error()})
}

// settled records a failure and returns the result, unless that does not work.
func (a *attempt) settled(ctx context.Context, result idempotency.Result, err error, f idempotency.Failure) (idempotency.Result, error) {
	f.Retention = a.options.Retention
	failErr := a.fail(ctx, f)
	switch {
	case failErr == nil:
		return result, err
	case errors.Is(failErr, idempotency.ErrLeaseLost):
		return a.lost(nil, err)
	default:
		return a.result(idempotency.Unavailable, nil), errors.Join(err, failErr)
	}
}

func (a *attempt) fail(ctx context.Context, f idempotency.Failure) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	begun := time.Now()
	err := a.store.Fail(ctx, a.claimed.Lease, f)
	a.called(idempotency.OpFail, begun, err)
	return err
}

// doubted settles an attempt whose commit may have been carried out. Recording
// a failure waits for the transaction's end, if the server still has it, and
// then finds the record free, so that nothing was committed and never will be,
// or completed.
func (a *attempt) doubted(ctx context.Context, value []byte, err error) (idempotency.Result, error) {
	wait := a.waits.Wait(a.claimed.Attempts)
	failErr := a.fail(ctx, idempotency.Failure{RetryAfter: wait, Reason: err.Error(), Retention: a.options.Retention})
	if failErr == nil {
		result := a.result(idempotency.Retry, nil)
		result.Wait = wait
		return result, err
	}
	if !errors.Is(failErr, idempotency.ErrLeaseLost) {
		return a.result(idempotency.Unavailable, nil), errors.Join(err, failErr)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	record, inspectErr := a.store.Inspect(ctx, a.message.Key)
	switch {
	case inspectErr != nil:
		return a.result(idempotency.Unavailable, nil), errors.Join(err, inspectErr)
	case record.State == idempotency.Completed && record.HeldBy(a.claimed.Lease):
		return a.result(idempotency.Handled, value), nil
	}
	return a.lost(value, err)
}

// lost ends an attempt whose lease went to somebody else. Its transaction was
// rolled back.
func (a *attempt) lost(value []byte, err error) (idempotency.Result, error) {
	if a.ran && a.options.Observer.LeaseLost != nil {
		a.options.Observer.LeaseLost(idempotency.Loss{Message: a.message, Lease: a.claimed.Lease, Result: value, Err: err})
	}
	return a.result(idempotency.Lost, nil), errors.Join(err, fmt.Errorf("%s: %w", a.message.Key, idempotency.ErrLeaseLost))
}
