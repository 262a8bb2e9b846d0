package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// hold extends a lease during the work: until release is called, in a living
// process, even if the work goes on after the end of its context. Somebody else
// would begin the same work otherwise.
//
// The server's clock is not known here, but the lease began after the request:
// on the local, monotonic clock the lease lasts until asked+Lease at least. The
// context of the work ends Margin earlier, by a separate timer, so a hanging
// store delays nothing; not so with FailOpen, where a hanging store is no
// reason to end the work.
type hold struct {
	// ctx is the work's. The cause wraps ErrLeaseLost if the lease was, or may
	// soon be, lost.
	ctx    context.Context
	cancel context.CancelCauseFunc

	store   storage.Store
	lease   storage.Lease
	options *Options
	expires time.Time // by the local clock, Margin earlier

	beat  *time.Timer   // starts the extending goroutine, when due
	ended chan struct{} // closed when the goroutine has ended, or is not to start
	err   error         // ErrLeaseLost if the store said so; to be read after ended

	mu       sync.Mutex
	released bool
	end      context.CancelFunc // of the extensions; nil before the goroutine has started
}

// errLeaseEnds is the cause when no extension was acknowledged in time.
var errLeaseEnds = fmt.Errorf("%w: it could not be extended in time", storage.ErrLeaseLost)

// newHold has the lease extended, by a goroutine started when due: never for
// most work. Release or a lost lease ends the goroutine.
func newHold(ctx context.Context, s storage.Store, lease storage.Lease, asked time.Time, o *Options) *hold {
	h := &hold{store: s, lease: lease, options: o, expires: asked.Add(o.Lease - o.Margin), ended: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(storage.ContextWithLease(ctx, lease))
	if time.Until(h.expires) <= 0 {
		h.expire()
	}
	h.beat = time.AfterFunc(time.Until(asked.Add(o.Heartbeat)), func() {
		defer close(h.ended)
		h.extend()
	})
	return h
}

func (h *hold) expire() {
	if !h.options.FailOpen {
		h.cancel(errLeaseEnds)
	}
}

// release ends the goroutine and waits for it. The lease itself is not given
// up. release returns an error wrapping ErrLeaseLost after a lost lease.
// release may be called again.
func (h *hold) release() error {
	h.mu.Lock()
	h.released = true
	if h.end != nil {
		h.end()
	}
	h.mu.Unlock()
	if !h.beat.Stop() { // started, or stopped before
		<-h.ended
	} else {
		close(h.ended)
	}
	h.cancel(context.Canceled)
	return h.err
}

// start returns the context of the extensions, or nil if there are to be none.
func (h *hold) start() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return nil
	}
	held, end := context.WithCancel(context.WithoutCancel(h.ctx))
	h.end = end
	return held
}

// extend extends the lease now, and each Heartbeat.
func (h *hold) extend() {
	held := h.start()
	if held == nil {
		return
	}
	expiry := time.AfterFunc(time.Until(h.expires), h.expire)
	defer expiry.Stop()
	wait := time.NewTimer(h.options.Heartbeat) // set anew before each wait
	defer wait.Stop()
	for held.Err() == nil {
		now := time.Now()
		err := h.extendOnce(held)
		switch {
		case err == nil:
			// After the timer has fired, the work was told to end; the lease goes on.
			if expiry.Stop() {
				expiry.Reset(time.Until(now.Add(h.options.Lease - h.options.Margin)))
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
		case <-held.Done():
		case <-wait.C:
		}
	}
}

func (h *hold) extendOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.options.Timeout)
	defer cancel()
	return h.store.Extend(ctx, h.lease, h.options.Lease)
}
