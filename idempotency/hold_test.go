package idempotency_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// stubborn returns a handler going on for d whatever becomes of the context.
func stubborn(d time.Duration, err error) idempotency.Handler {
	return func(context.Context) ([]byte, error) { wait(d); return []byte("result"), err }
}

// background runs the handler on a goroutine and returns the outcome there.
func (f *fixture) background(ctx context.Context, h idempotency.Handler) (outcome func() (idempotency.Result, error)) {
	p := f.processor()
	var (
		r   idempotency.Result
		err error
	)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err = p.Run(ctx, f.message, h)
	}()
	return func() (idempotency.Result, error) { <-done; return r, err }
}

// A handler deaf to the end of the context keeps the lease: nobody begins the
// same work beside.
func TestTheLeaseLastsAsLongAsTheHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithCancel(t.Context())
		outcome := f.background(ctx, stubborn(10*time.Minute, nil))
		wait(time.Second)
		cancel()
		for range 50 {
			wait(10 * time.Second)
			f.becomes(idempotency.Elsewhere, unreachable(t))
		}
		if r, err := outcome(); r.Disposition != idempotency.Handled || r.Attempt != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		f.becomes(idempotency.Skipped, unreachable(t))
	})
}

// A lease not extended in time is taken up again.
func TestALeaseIsTakenUpAgainAfterAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		outcome := f.background(t.Context(), stubborn(10*time.Minute, nil))
		wait(time.Second)
		f.store.fail(always(storage.OpExtend), nil)
		wait(time.Minute)
		f.store.fail(nil, nil)
		for range 20 {
			wait(10 * time.Second)
			f.becomes(idempotency.Elsewhere, unreachable(t))
		}
		if r, err := outcome(); r.Disposition != idempotency.Handled {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Failing open, an outage of the store is no reason to end a handler.
func TestFailOpenLetsHandlersEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.options.FailOpen = true
		f.store.fail(always(storage.OpExtend, storage.OpComplete), nil)
		f.becomes(idempotency.Handled, func(ctx context.Context) ([]byte, error) {
			wait(10 * time.Minute)
			return nil, ctx.Err()
		})
	})
}

func TestHandlerTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		var mu sync.Mutex
		var all []bool
		f.options.Observer.HandlerStuck = func(_ idempotency.Message, stuck bool) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, stuck)
		}
		told := func() []bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		f.options.HandlerTimeout, f.options.MaxAttempts = time.Minute, 2
		var cause error
		begun := time.Now()
		r, err := f.tries(idempotency.Retry, until(&cause))
		if !errors.Is(cause, storage.ErrHandlerTimeout) || !errors.Is(err, storage.ErrHandlerTimeout) || time.Since(begun) != time.Minute {
			t.Fatalf("cause %v, error %v, after %s", cause, err, time.Since(begun))
		}
		if got := f.record(); got.Attempts != 1 || got.Excused != 0 || r.Wait <= 0 || len(told()) != 0 {
			t.Errorf("%+v, %+v, %v", r, got, told())
		}
		wait(r.Wait)
		// The second does not heed the context, and is told of.
		outcome := f.background(t.Context(), stubborn(10*time.Minute, errHandler))
		wait(5 * time.Minute)
		synctest.Wait()
		if !slices.Equal(told(), []bool{true}) {
			t.Errorf("told %v", told())
		}
		r, err = outcome()
		synctest.Wait()
		if r.Disposition != idempotency.DeadLettered || len(f.dead) != 1 || !errors.Is(f.dead[0].Reason, storage.ErrHandlerTimeout) {
			t.Errorf("%+v, %v, %+v", r, err, f.dead)
		}
		if !slices.Equal(told(), []bool{true, false}) {
			t.Errorf("told %v", told())
		}
		// Success is success, however late.
		f.message.Key.ID = "late"
		f.becomes(idempotency.Handled, stubborn(10*time.Minute, nil))
	})
}
