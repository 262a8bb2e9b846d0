package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// hold extends a lease while work is done under it.
//
// The server's clock is not known here, only that the lease began after it was
// asked for: on the local, monotonic clock it lasts until asked+Lease at least.
// The context of the work ends Margin earlier, by a timer of its own, so that a
// store that hangs cannot delay it.
type hold struct {
	// ctx is that of the work. Its cause wraps ErrLeaseLost if the lease was, or
	// may soon be, lost.
	ctx    context.Context
	cancel context.CancelCauseFunc

	store   Store
	lease   Lease
	options Options

	expiry *time.Timer
	ended  chan struct{} // closed when the goroutine has ended
	err    error         // ErrLeaseLost if the store said so; to be read after ended
}

// errLeaseEnds is the cause when no extension was acknowledged in time.
var errLeaseEnds = fmt.Errorf("%w: it could not be extended in time", ErrLeaseLost)

// newHold starts the goroutine that extends the lease. It ends when release is
// called, when ctx ends, or when the lease is lost.
func newHold(ctx context.Context, s Store, lease Lease, asked time.Time, o Options) *hold {
	h := &hold{store: s, lease: lease, options: o, ended: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(ContextWithLease(ctx, lease))
	until := asked.Add(o.Lease - o.Margin)
	h.expiry = time.AfterFunc(time.Until(until), func() { h.cancel(errLeaseEnds) })
	go func() {
		defer close(h.ended)
		h.extend(asked, until)
	}()
	return h
}

// release ends the goroutine and waits for it. The lease itself is not given up.
// It returns an error that wraps ErrLeaseLost if the store said that it is lost.
// It may be called again.
func (h *hold) release() error {
	h.cancel(context.Canceled)
	<-h.ended
	h.expiry.Stop()
	return h.err
}

// extend extends the lease each Heartbeat. asked is when the last call that
// succeeded was made, until is when the work must end.
func (h *hold) extend(asked, until time.Time) {
	wait := time.NewTimer(time.Until(asked.Add(h.options.Heartbeat)))
	defer wait.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-wait.C:
		}
		now := time.Now()
		err := h.extendBy(until)
		switch {
		case err == nil:
			until = now.Add(h.options.Lease - h.options.Margin)
			if !h.expiry.Reset(time.Until(until)) {
				return // it has fired: the work was told to end
			}
			wait.Reset(time.Until(now.Add(h.options.Heartbeat)))
		case errors.Is(err, ErrLeaseLost):
			h.err = err
			h.cancel(err)
			return
		default:
			wait.Reset(h.options.Heartbeat / tries)
		}
	}
}

// extendBy makes one call. After until it would be of no use.
func (h *hold) extendBy(until time.Time) error {
	ctx, cancel := context.WithDeadline(h.ctx, until)
	defer cancel()
	ctx, cancelTry := context.WithTimeout(ctx, h.options.Timeout)
	defer cancelTry()
	return h.store.Extend(ctx, h.lease, h.options.Lease)
}
