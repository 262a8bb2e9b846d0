package idempotency_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// shadowed is a Processor under a shadow, with its decisions.
type shadowed struct {
	*fixture
	would []idempotency.Disposition
}

func newShadowed(f *fixture) *shadowed {
	s := &shadowed{fixture: f}
	f.options.Shadow = true
	f.options.Observer.Shadow = func(_ idempotency.Message, r idempotency.Result, _ error) {
		s.would = append(s.would, r.Disposition)
	}
	return s
}

// sees runs the message: the handler must have run, and the shadow must have
// come to want.
func (s *shadowed) sees(want idempotency.Disposition, h idempotency.Handler) {
	s.Helper()
	ran := false
	r, err := s.run(func(ctx context.Context) ([]byte, error) {
		ran = true
		return h(ctx)
	})
	if !ran || r.Done() != (err == nil) {
		s.Fatalf("ran: %t, %+v, %v", ran, r, err)
	}
	if last := s.would[len(s.would)-1]; last != want {
		s.Fatalf("it would have come to %s, want %s", last, want)
	}
}

func TestAShadowDecidesAndSkipsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		s := newShadowed(f)
		s.sees(idempotency.Retry, failing)
		wait(time.Millisecond)
		s.sees(idempotency.Retry, func(context.Context) ([]byte, error) { return nil, idempotency.Terminal(errHandler) })
		wait(time.Millisecond)
		s.sees(idempotency.Retry, func(context.Context) ([]byte, error) { panic("no such order") })
		wait(time.Millisecond)
		s.sees(idempotency.Handled, succeed)
		s.sees(idempotency.Skipped, succeed)
		s.sees(idempotency.Skipped, failing)
		if r := f.record(); r.State != storage.Completed {
			t.Errorf("%+v", r)
		}
		f.message.Fingerprint = idempotency.FingerprintBytes([]byte("another"))
		s.sees(idempotency.DeadLettered, succeed)
		f.message.Key.ID = ""
		s.sees(idempotency.DeadLettered, succeed)
	})
}

// Everything handled under a shadow is known in earnest; nothing was given up,
// and so nothing else is skipped then.
func TestAShadowLeavesWhatCanBeUsed(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		earnest := f.options
		s := newShadowed(f)
		s.sees(idempotency.Handled, succeed)
		f.message.Key.ID = "hopeless"
		for range 20 {
			s.sees(idempotency.Retry, func(context.Context) ([]byte, error) { return nil, idempotency.Terminal(errHandler) })
			wait(time.Millisecond)
		}
		if len(f.dead) > 0 {
			t.Errorf("dead letters: %+v", f.dead)
		}
		f.options = earnest
		f.becomes(idempotency.Handled, succeed)
		f.message.Key.ID = "message"
		f.becomes(idempotency.Skipped, unreachable(t))
	})
}

// A death of the process under a shadow says nothing about the message: after any
// number of deaths, the message starts anew in earnest.
func TestDeathsUnderAShadowAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		earnest := f.options
		s := newShadowed(f)
		for range 12 {
			died := make(chan struct{})
			go func() {
				defer close(died)
				_, _ = s.run(func(context.Context) ([]byte, error) { runtime.Goexit(); return nil, nil })
			}()
			<-died
			wait(time.Minute) // the lease ends
		}
		f.options = earnest
		if r := f.becomes(idempotency.Handled, succeed); r.Attempt != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// Neither a silent store, nor somebody else's lease, nor a lost lease is
// anything to the handler, nor to the watch for messages handled twice.
func TestAShadowIsInNobodysWay(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.options.Observer.LeaseLost = func(l idempotency.Loss) { t.Errorf("a lost lease is told: %+v", l) }
		f.options.Observer.FailOpen = func(_ idempotency.Message, err error) { t.Errorf("a run without a claim is told: %v", err) }
		f.options.Observer.HandlerStuck = func(_ idempotency.Message, stuck bool) { t.Errorf("a handler is told to be stuck: %t", stuck) }
		s := newShadowed(f)
		s.sees(idempotency.Lost, func(ctx context.Context) ([]byte, error) {
			if _, err := f.memory.Release(ctx, f.message.Key); err != nil {
				t.Error(err)
			}
			wait(time.Hour) // the extensions find out
			return nil, ctx.Err()
		})
		s.sees(idempotency.Handled, func(context.Context) ([]byte, error) {
			s.sees(idempotency.Elsewhere, succeed)
			return nil, nil
		})
		f.message.Key.ID = "unheard"
		f.store.fail(always(storage.OpClaim, storage.OpComplete), nil)
		s.sees(idempotency.Handled, succeed)
	})
}

// A handler failing under a shadow is not called again at once: the waits are the
// options', as in earnest.
func TestAShadowLetsAFailedHandlerRest(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.options.FirstRetry, f.options.LastRetry = time.Minute, time.Hour
		s := newShadowed(f)
		for range 2 { // the second is claimed without the wait
			r, err := s.run(failing)
			if err == nil || r.Disposition != idempotency.Retry || r.Wait < 30*time.Second {
				t.Errorf("%+v, %v", r, err)
			}
			if last := s.would[len(s.would)-1]; last != idempotency.Retry {
				t.Errorf("it would have come to %s", last)
			}
		}
	})
}
