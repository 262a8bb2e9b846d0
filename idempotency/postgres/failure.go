package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/internal/recovered"
)

// failed settles an attempt that was rolled back because of err.
func (a *attempt) failed(ctx context.Context, err error) (idempotency.Result, error) {
	// After ErrTxEnded every further attempt would write its part once more.
	final := (idempotency.IsTerminal(err) || errors.Is(err, ErrTxEnded)) && a.options.DeadLetter != nil
	switch {
	case ctx.Err() != nil && !errors.Is(err, ErrTxEnded):
		return a.interrupted(ctx, 0, fmt.Errorf("interrupted: %w", err))
	case final:
		return a.bury(ctx, err)
	case idempotency.IsNotItsFault(err):
		return a.interrupted(ctx, a.waits.Wait(a.claimed.Excused+1), err)
	case a.options.MaxAttempts > 0 && a.claimed.Failures()+1 >= a.options.MaxAttempts:
		return a.bury(ctx, fmt.Errorf("%w: after %d: %w", idempotency.ErrExhausted, a.claimed.Attempts, err))
	}
	return a.again(ctx, err)
}

// again leaves the message for another try after a backoff.
func (a *attempt) again(ctx context.Context, err error) (idempotency.Result, error) {
	wait := a.waits.Wait(a.claimed.Failures() + 1)
	result := a.result(idempotency.Retry, nil)
	result.Wait = wait
	return a.settled(ctx, result, err, idempotency.Failure{RetryAfter: wait, Reason: err.Error()})
}

// interrupted leaves the message for another try. It was not the reason.
func (a *attempt) interrupted(ctx context.Context, wait time.Duration, err error) (idempotency.Result, error) {
	result := a.result(idempotency.Retry, nil)
	result.Wait = wait
	f := idempotency.Failure{Excused: a.ran, Unrun: !a.ran, RetryAfter: wait, Reason: err.Error()}
	return a.settled(ctx, result, err, f)
}

// refuse deals with a message for which no attempt can be made. If its key has
// a record, that is another message's.
func (a *attempt) refuse(ctx context.Context, reason error) (idempotency.Result, error) {
	if a.options.DeadLetter == nil {
		return idempotency.Result{Disposition: idempotency.Retry, Wait: a.waits.Wait(1)}, reason
	}
	letter := idempotency.DeadLetter{Message: a.message, Reason: reason}
	if err := recovered.Call(func() error { return a.options.DeadLetter(ctx, letter) }); err != nil {
		return idempotency.Result{Disposition: idempotency.Retry, Wait: a.waits.Wait(1)},
			fmt.Errorf("keep dead letter: %w", errors.Join(err, reason))
	}
	return idempotency.Result{Disposition: idempotency.DeadLettered, Reason: reason.Error()}, nil
}

// bury gives the message up: the dead letter first, then the key. The
// transaction is over, so from here on only the lease keeps others away.
func (a *attempt) bury(ctx context.Context, reason error) (idempotency.Result, error) {
	lease := a.claimed.Lease
	if a.ran {
		a.pending = &idempotency.Pending{Key: lease.Key, Attempt: a.claimed.Attempts, Reason: reason}
	}
	if err := a.store.Extend(ctx, lease, a.options.Lease); err != nil {
		return a.unsettled(nil, err, reason)
	}
	letter := idempotency.DeadLetter{Message: a.message, Attempts: a.claimed.Attempts - 1, Reason: reason}
	if a.pending != nil {
		letter.Attempts = a.pending.Attempt
	}
	err := recovered.Call(func() error { return a.options.DeadLetter(idempotency.ContextWithLease(ctx, lease), letter) })
	if err != nil {
		return a.postpone(ctx, fmt.Errorf("keep dead letter: %w", errors.Join(err, reason)))
	}
	result := a.result(idempotency.DeadLettered, nil)
	result.Reason = reason.Error()
	return a.settled(ctx, result, nil, idempotency.Failure{Terminal: true, Reason: result.Reason})
}

// postpone leaves a message for later, because its dead letter could not be
// written. The attempt counts if the handler ran, even if the dead letter was
// only interrupted. If the handler did not run, the record stays as it was.
func (a *attempt) postpone(ctx context.Context, err error) (idempotency.Result, error) {
	result, tries := a.result(idempotency.Retry, nil), a.claimed.Attempts
	if a.pending != nil {
		pending := *a.pending
		pending.Tries++
		a.pending, tries = &pending, pending.Tries
	}
	if ctx.Err() == nil {
		result.Wait = a.waits.Wait(tries)
	}
	f := idempotency.Failure{RetryAfter: result.Wait, Reason: err.Error()}
	if !a.ran {
		f.Unrun, f.Reason = true, a.claimed.Reason
	}
	return a.settled(ctx, result, err, f)
}

// settled records a failure and returns the result, unless that does not work.
func (a *attempt) settled(ctx context.Context, result idempotency.Result, err error, f idempotency.Failure) (idempotency.Result, error) {
	f.Retention = a.options.Retention
	if failErr := a.fail(ctx, f); failErr != nil {
		return a.unsettled(nil, failErr, err)
	}
	return result, err
}

// unsettled says what the error of a settlement means for the message. value and
// reason are the handler's.
func (a *attempt) unsettled(value []byte, err, reason error) (idempotency.Result, error) {
	all := errors.Join(err, reason)
	if !errors.Is(err, idempotency.ErrLeaseLost) {
		result := a.result(idempotency.Unavailable, nil)
		result.Wait = a.waits.Wait(1)
		return result, all
	}
	if a.ran && a.options.Observer.LeaseLost != nil {
		a.options.Observer.LeaseLost(idempotency.Loss{Message: a.message, Lease: a.claimed.Lease, Result: value, Err: reason})
	}
	return a.result(idempotency.Lost, nil), all
}

func (a *attempt) fail(ctx context.Context, f idempotency.Failure) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.options.Timeout)
	defer cancel()
	begun := time.Now()
	err := a.store.Fail(ctx, a.claimed.Lease, f)
	a.called(idempotency.OpFail, begun, err)
	return err
}

// doubted settles an attempt whose commit may have been carried out. To record
// a failure it waits for the end of the transaction, if the server still has
// it. Then the record is either completed, or free: in that case nothing was
// committed, and nothing will be.
func (a *attempt) doubted(ctx context.Context, value []byte, err error) (idempotency.Result, error) {
	result := a.result(idempotency.Retry, nil)
	result.Wait = a.waits.Wait(a.claimed.Failures() + 1)
	failErr := a.fail(ctx, idempotency.Failure{RetryAfter: result.Wait, Reason: err.Error(), Retention: a.options.Retention})
	if failErr == nil {
		return result, err
	}
	if errors.Is(failErr, idempotency.ErrLeaseLost) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.options.Timeout)
		defer cancel()
		record, inspectErr := a.store.Inspect(ctx, a.message.Key)
		if inspectErr != nil {
			failErr = inspectErr
		} else if record.State == idempotency.Completed && record.HeldBy(a.claimed.Lease) {
			return a.result(idempotency.Handled, value), nil
		}
	}
	return a.unsettled(value, failErr, err)
}
