package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/ahead"
	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/usercode"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// attempt is a granted claim, from the grant to the settlement.
type attempt struct {
	*Processor
	ctx     context.Context // the caller's
	message Message
	claim   storage.Claim
	work    storage.Work // nil unless the store is a Transactor; then until released
	asked   time.Time    // before the claim was
	ran     bool         // the handler was called
	failure error        // the handler's
	turn    *ahead.Turn  // nil unless messages come in turn
	pending *Pending     // left by an earlier Run or, later, by this one
}

// result returns the attempt's Result.
func (a *attempt) result(d Disposition, wait time.Duration) Result {
	r := Result{Disposition: d, Wait: wait, Layer: a.claim.Layer}
	if !r.Done() && d != Lost {
		r.Pending = a.pending
	}
	if a.ran {
		r.Attempt = a.claim.Attempts
	}
	return r
}

func (a *attempt) run(handler Handler) (Result, error) {
	if a.work != nil {
		return a.transact(handler)
	}
	h := newHold(a.ctx, a.store, a.claim.Lease, a.asked, &a.options)
	defer func() { _ = h.release() }()           // also when the handler panics
	if err := context.Cause(h.ctx); err != nil { // the claim took too long
		return a.interrupted(h, err)
	}
	if reason := a.hopeless(); reason != nil {
		return a.giveUp(h, reason)
	}
	a.ran = true
	value, err := a.call(h.ctx, handler)
	if err == nil {
		return a.complete(h, value)
	}
	return a.failed(h, h.ctx.Err() != nil, err)
}

// hopeless says why the handler is not to be called any more, or nil.
func (a *attempt) hopeless() error {
	if a.pending.givenUp() {
		return a.pending.Reason
	}
	return a.options.exhausted(a.claim)
}

// failed settles an attempt whose handler, or commit, failed. It was
// interrupted if its context had ended. There is no hold after a transaction.
func (a *attempt) failed(h *hold, interrupted bool, err error) (Result, error) {
	a.failure = err
	switch {
	case interrupted:
		return a.interrupted(h, err)
	case (isTerminal(err) || errors.Is(err, storage.ErrEscaped)) && a.options.DeadLetter != nil:
		return a.giveUp(h, err)
	case isTransient(err) || a.options.Shadow: // a failure in a trial is not held against the message
		return a.excuse(h, advised(err))
	case a.options.MaxAttempts > 0 && a.claim.Failures()+1 >= a.options.MaxAttempts:
		return a.giveUp(h, fmt.Errorf("%w: after %d: %w", storage.ErrExhausted, a.claim.Attempts, err))
	default:
		return a.retry(h, err)
	}
}

// call calls the handler, and tells of a slow run.
func (a *attempt) call(ctx context.Context, handler Handler) ([]byte, error) {
	if a.options.HandlerTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, a.options.HandlerTimeout, storage.ErrHandlerTimeout)
		defer cancel()
	}
	if tell := a.options.Observer.HandlerStuck; tell != nil {
		defer watchStuck(ctx, a.options.Margin, func(stuck bool) { tell(a.message, stuck) })()
	}
	value, err := call(ctx, handler)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, storage.ErrHandlerTimeout) {
		err = fmt.Errorf("%w, %s: %w", cause, a.options.HandlerTimeout, err)
	}
	return value, err
}

// call calls the handler; a panic is an error.
func call(ctx context.Context, handler Handler) (value []byte, err error) {
	err = usercode.Call(func() (err error) {
		value, err = handler(ctx)
		return err
	})
	return value, err
}

// standAside gives the claim back, unused.
func (a *attempt) standAside() (Result, error) {
	a.release()
	err := a.settleFailure(nil, storage.Failure{Unrun: true, Reason: a.claim.Reason, Retention: a.options.Retention})
	if err != nil {
		a.pending = a.pending.claimed(a.message.Key, a.claim.Lease.Owner, err)
		return a.unsettled(err, nil, nil)
	}
	return a.result(Retry, 0), errAlone
}

// complete settles the key after the handler succeeded. If the lease has run
// out by our clock, the key may still be ours at the store. So the store is
// asked, unless the lease is known as lost.
func (a *attempt) complete(h *hold, value []byte) (Result, error) {
	if a.pending == nil {
		a.pending = &Pending{Key: a.message.Key, Attempt: a.claim.Attempts, Lease: a.claim.Lease, Value: value}
	}
	next := a.next()
	ok, err := a.completeTogether(h, value, next)
	if !ok {
		wait := a.claimMeanwhile(next)
		defer wait()
		err = a.settle(h, "complete key", a.completion(value))
	}
	if errors.Is(err, storage.ErrResultTooLarge) {
		a.options.Observer.resultDropped(a.message, len(value))
		err = a.settle(h, "complete key", a.completion(nil))
	}
	if err != nil {
		return a.unsettled(err, nil, value)
	}
	r := a.result(Handled, 0)
	r.Value = value
	return r, nil
}

// completion is the store's Complete, with the result.
func (a *attempt) completion(value []byte) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		return a.store.Complete(ctx, a.claim.Lease, value, a.options.Retention)
	}
}

// retry leaves the message for a later attempt, because of err.
func (a *attempt) retry(h *hold, err error) (Result, error) {
	wait := a.options.retryAfter(a.claim.Failures() + 1)
	return a.fail(h, storage.Failure{RetryAfter: wait, Reason: err.Error()}, err)
}

// excuse leaves the message for a later attempt, however often.
func (a *attempt) excuse(h *hold, err error) (Result, error) {
	wait := a.options.retryAfter(a.claim.Excused + 1)
	if a.options.Shadow { // the next call is decided upon at any time
		wait = 0
	}
	return a.fail(h, storage.Failure{Excused: true, RetryAfter: wait, Reason: err.Error()}, err)
}

// interrupted leaves the message for the next consumer. The reason is the
// consumer or the store, not the message.
func (a *attempt) interrupted(h *hold, err error) (Result, error) {
	err = fmt.Errorf("interrupted: %w", err)
	f := storage.Failure{Excused: true, Reason: err.Error()}
	if !a.ran { // the last failure is still an attempt's
		f = storage.Failure{Unrun: true, Reason: a.claim.Reason}
	}
	return a.fail(h, f, err)
}

func (a *attempt) fail(h *hold, f storage.Failure, err error) (Result, error) {
	f.Retention = a.options.Retention
	if settleErr := a.settleFailure(h, f); settleErr != nil {
		return a.unsettled(settleErr, err, nil)
	}
	return a.result(Retry, f.RetryAfter), err
}

// giveUp makes the message durable elsewhere while the lease is held, and only
// then settles the key.
func (a *attempt) giveUp(h *hold, reason error) (Result, error) {
	d := DeadLetter{Message: a.message, Attempts: a.claim.Attempts - 1, Reason: reason}
	if a.ran {
		a.pending = &Pending{Key: a.message.Key, Attempt: a.claim.Attempts, Reason: reason}
	}
	if h == nil {
		var err error
		if h, err = a.holdAgain(); err != nil {
			return a.unsettled(err, reason, nil)
		}
		defer func() { _ = h.release() }()
	}
	if a.pending != nil {
		d.Attempts = a.pending.Attempt
	}
	if err := a.deadLetter(h.ctx, d); err != nil {
		return a.postpone(h, reason, err)
	}
	if a.pending != nil {
		a.pending = a.pending.buried(a.claim.Lease)
	}
	return a.settleBuried(h, reason)
}

// settleBuried settles the key of a message with the dead letter durable.
func (a *attempt) settleBuried(h *hold, reason error) (Result, error) {
	f := storage.Failure{Terminal: true, Reason: reason.Error(), Retention: a.options.Retention}
	if err := a.settleFailure(h, f); err != nil {
		return a.unsettled(err, reason, nil)
	}
	r := a.result(DeadLettered, 0)
	r.Reason = f.Reason
	return r, nil
}

// postpone leaves a message for later, because the dead letter could not be
// written. The attempt counts if the handler ran, even if the dead letter was
// only interrupted. If the handler did not run, the record stays as is.
func (a *attempt) postpone(h *hold, reason, err error) (Result, error) {
	all := errors.Join(reason, err)
	f, tries := storage.Failure{Reason: all.Error()}, a.claim.Attempts
	if !a.ran {
		f.Unrun, f.Reason = true, a.claim.Reason
	}
	if a.pending != nil {
		a.pending = a.pending.unburied()
		tries = a.pending.Tries
	}
	if h.ctx.Err() == nil {
		f.RetryAfter = a.options.retryAfter(tries)
	}
	return a.fail(h, f, all)
}

func (a *attempt) settleFailure(h *hold, f storage.Failure) error {
	return a.settle(h, "fail key", func(ctx context.Context) error { return a.store.Fail(ctx, a.claim.Lease, f) })
}

// settle ends the hold and asks the store, even if ctx has ended. The hold is
// nil if ended by an earlier Run.
func (a *attempt) settle(h *hold, what string, call func(ctx context.Context) error) error {
	var err error
	if h != nil {
		err = h.release()
	}
	ctx := context.WithoutCancel(a.ctx)
	switch {
	case err != nil:
	case a.outage != nil:
		err = a.settleOnce(ctx, a.message.Key, call)
	default:
		err = a.ask(ctx, 0, call)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// unsettled returns the Result after a failed settlement.
func (a *attempt) unsettled(err, reason error, value []byte) (Result, error) {
	all := errors.Join(err, reason)
	if !errors.Is(err, storage.ErrLeaseLost) {
		if a.outage != nil {
			return a.unsettledOpen(err, reason, value)
		}
		return a.result(Unavailable, a.options.retryAfter(1)), all
	}
	if a.ran {
		loss := Loss{Message: a.message, Lease: a.claim.Lease, Result: value, Err: a.failure}
		a.options.Observer.leaseLost(loss)
		all = errors.Join(all, a.compensate(loss))
	}
	return a.result(Lost, 0), all
}

func (a *attempt) compensate(loss Loss) error {
	if a.options.Compensate == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), a.options.Timeout)
	defer cancel()
	err := usercode.Call(func() error { a.options.Compensate(storage.ContextWithLease(ctx, loss.Lease), loss); return nil })
	if err != nil {
		return fmt.Errorf("compensate: %w", err)
	}
	return nil
}
