package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/ahead"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// transact runs the handler in the transaction completing the key. Meanwhile,
// the transaction keeps others away, and not the lease.
func (a *attempt) transact(handler Handler) (Result, error) {
	if reason := a.hopeless(); reason != nil {
		a.release()
		return a.giveUp(nil, reason)
	}
	ctx, err := a.work.Begin(storage.ContextWithLease(a.ctx, a.claim.Lease))
	if err != nil {
		a.release()
		err = fmt.Errorf("begin: %w", advised(err))
		return a.fail(nil, storage.Failure{Unrun: true, RetryAfter: a.options.retryAfter(1), Reason: a.claim.Reason}, err)
	}
	a.ran = true
	value, err := a.call(ctx, handler)
	if err != nil {
		a.release()
		return a.failed(nil, a.ctx.Err() != nil, err)
	}
	err = a.commit(value)
	a.release()
	switch {
	case err == nil:
		r := a.result(Handled, 0)
		r.Value = value
		return r, nil
	case errors.Is(err, storage.ErrLeaseLost):
		return a.unsettled(err, nil, value)
	case errors.Is(err, storage.ErrInDoubt):
		return a.doubted(err, value)
	case errors.Is(err, ahead.ErrClaim):
		return a.excuse(nil, err)
	default:
		return a.failed(nil, a.ctx.Err() != nil && !errors.Is(err, storage.ErrEscaped), err)
	}
}

// release rolls the transaction back, unless it is committed. Nothing else is
// asked of the store before: it may have no other connection.
func (a *attempt) release() {
	if a.work != nil {
		a.work.Release(a.ctx)
		a.work = nil
	}
}

// commit completes the key and commits, even if the caller's context has ended.
func (a *attempt) commit(value []byte) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), a.options.Timeout)
	defer cancel()
	next := a.next()
	begun := time.Now()
	if next != nil {
		defer func() {
			if a.leaveNext(next); next.Live() {
				a.options.Observer.storeCall(storage.OpClaim, begun, nil)
			}
		}()
	}
	err := a.commitAndClaim(ctx, value, next)
	if errors.Is(err, storage.ErrResultTooLarge) {
		a.options.Observer.resultDropped(a.message, len(value))
		err = a.commitAndClaim(ctx, nil, next)
	}
	a.options.Observer.storeCall(storage.OpComplete, begun, err)
	if err != nil {
		return fmt.Errorf("complete key: %w", err)
	}
	return nil
}

// doubted settles an attempt whose commit may have been carried out. To record a
// failure the store waits for the end of the transaction, if the server still
// has it. Then the record is either completed, or free: in that case nothing was
// committed, and nothing will be.
func (a *attempt) doubted(err error, value []byte) (Result, error) {
	a.failure = err
	f := storage.Failure{Reason: err.Error(), Retention: a.options.Retention, Excused: errors.Is(err, ahead.ErrClaim)}
	f.RetryAfter = a.options.retryAfter(a.claim.Failures() + 1)
	settleErr := a.settleFailure(nil, f)
	if settleErr == nil {
		return a.result(Retry, f.RetryAfter), err
	}
	if errors.Is(settleErr, storage.ErrLeaseLost) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), a.options.Timeout)
		defer cancel()
		record, inspectErr := a.store.Inspect(ctx, a.message.Key)
		if inspectErr != nil {
			settleErr = inspectErr
		} else if record.State == storage.Completed && record.HeldBy(a.claim.Lease) {
			r := a.result(Handled, 0)
			r.Value = value
			return r, nil
		}
	}
	return a.unsettled(settleErr, err, value)
}

// holdAgain takes up the lease after the transaction's end.
func (a *attempt) holdAgain() (*hold, error) {
	asked := time.Now()
	err := a.settle(nil, "extend lease", func(ctx context.Context) error {
		return a.store.Extend(ctx, a.claim.Lease, a.options.Lease)
	})
	if err != nil {
		return nil, err
	}
	return newHold(a.ctx, a.store, a.claim.Lease, asked, &a.options), nil
}
