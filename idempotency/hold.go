package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// hold extends a lease while work is done under it: until release is called, in
// a process that lives, even if the work goes on after its context has ended.
// Somebody else would begin the same work otherwise.
//
// The server's clock is not known here, only that the lease began after it was
// asked for: on the local, monotonic clock it lasts until asked+Lease at least.
// The context of the work ends Margin earlier, by a timer of its own, so that a
// store that hangs cannot delay it; not so with FailOpen, where a store that
// hangs is no reason to end the work.
type hold struct {
	// ctx is that of the work. Its cause wraps ErrLeaseLost if the lease was, or
	// may soon be, lost.
	ctx    context.Context
	cancel context.CancelCauseFunc

	store   storage.Store
	lease   storage.Lease
	options Options

	expiry *time.Timer
	beat   *time.Timer // starts the goroutine that extends, when that is due
	// held ends when the work has: it is the context of the extensions.
	held  context.Context
	end   context.CancelFunc
	ended chan struct{} // closed when the goroutine has ended
	err   error         // ErrLeaseLost if the store said so; to be read after ended
}

// errLeaseEnds is the cause when no extension was acknowledged in time.
var errLeaseEnds = fmt.Errorf("%w: it could not be extended in time", storage.ErrLeaseLost)

// newHold sees to it that the lease is extended, by a goroutine that starts when
// that is due, which it is not for most work. It ends when release is called, or
// when the lease is lost.
func newHold(ctx context.Context, s storage.Store, lease storage.Lease, asked time.Time, o Options) *hold {
	h := &hold{store: s, lease: lease, options: o, ended: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(storage.ContextWithLease(ctx, lease))
	h.held, h.end = context.WithCancel(context.WithoutCancel(ctx))
	h.expiry = time.AfterFunc(time.Until(asked.Add(o.Lease-o.Margin)), func() {
		if !o.FailOpen {
			h.cancel(errLeaseEnds)
		}
	})
	h.beat = time.AfterFunc(time.Until(asked.Add(o.Heartbeat)), func() {
		defer close(h.ended)
		h.extend()
	})
	return h
}

// release ends the goroutine and waits for it. The lease itself is not given up.
// It returns an error that wraps ErrLeaseLost if the store said that it is lost.
// It may be called again.
func (h *hold) release() error {
	h.end()
	if !h.beat.Stop() { // it has started, or was stopped before
		<-h.ended
	} else {
		close(h.ended)
	}
	h.expiry.Stop()
	h.cancel(context.Canceled)
	return h.err
}

// extend extends the lease now, and each Heartbeat.
func (h *hold) extend() {
	wait := time.NewTimer(h.options.Heartbeat) // set anew before each wait
	defer wait.Stop()
	for h.held.Err() == nil {
		now := time.Now()
		err := h.extendOnce()
		switch {
		case err == nil:
			// If it has fired, the work was told to end; the lease goes on.
			if h.expiry.Stop() {
				h.expiry.Reset(time.Until(now.Add(h.options.Lease - h.options.Margin)))
			}
			wait.Reset(time.Until(now.Add(h.options.Heartbeat)))
		case errors.Is(err, storage.ErrLeaseLost):
			h.err = err
			h.cancel(err)
			return
		default:
			wait.Reset(h.options.Heartbeat / tries)
		}
		select {
		case <-h.held.Done():
		case <-wait.C:
		}
	}
}

func (h *hold) extendOnce() error {
	ctx, cancel := context.WithTimeout(h.held, h.options.Timeout)
	defer cancel()
	return h.store.Extend(ctx, h.lease, h.options.Lease)
}
