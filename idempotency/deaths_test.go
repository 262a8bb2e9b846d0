package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// Everything in hand when a process died is tried again alone: so a message
// killing processes is buried, and no other.
func TestOnlyTheKillerIsBuried(t *testing.T) {
	for name, killers := range map[string][]string{
		"one killer":  {"k1"},
		"two killers": {"k1", "k2"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newVillage(t)
				ids := []string{"a", "b", "c", "d", "e", "f"}
				v.untilAllAreDone(append(ids, killers...), func(ctx context.Context, id string, die func()) {
					work(ctx, time.Second/time.Duration(len(id))) // killers are quicker
					if strings.HasPrefix(id, "k") && ctx.Err() == nil {
						die()
					}
				})
				for _, id := range ids {
					if v.done[id] != idempotency.Handled {
						t.Errorf("%s: %s, %+v", id, v.done[id], v.dead[id])
					}
				}
				for _, id := range killers {
					d := v.dead[id]
					if v.done[id] != idempotency.DeadLettered || !errors.Is(d.Reason, storage.ErrExhausted) ||
						v.runs[id] != 10 || d.Attempts != v.runs[id] {
						t.Errorf("%s: %s after %d runs, %+v", id, v.done[id], v.runs[id], d)
					}
				}
				if len(v.dead) != len(killers) {
					t.Errorf("%d dead letters", len(v.dead))
				}
			})
		})
	}
}

// Processes dying for other reasons bury no message.
func TestACrashLoopBuriesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVillage(t)
		var ids []string
		for i := range 200 {
			ids = append(ids, fmt.Sprint(i))
		}
		// A process lives until the nth handler has begun.
		var begun atomic.Int64
		v.untilAllAreDone(ids, func(ctx context.Context, _ string, die func()) {
			if begun.Add(1)%7 == 0 {
				work(ctx, time.Second/2)
				die()
			}
			work(ctx, time.Second)
		})
		if len(v.dead) > 0 {
			t.Errorf("%d of %d are buried", len(v.dead), len(ids))
		}
	})
}

// vanish lets a process claim the keys, and die.
func (f *fixture) vanish(keys ...storage.Key) {
	f.Helper()
	for _, k := range keys {
		_, err := f.memory.Claim(f.Context(), k, storage.ClaimRequest{
			Owner: storage.NewOwner(), Lease: time.Second, Retention: time.Hour,
		})
		if err != nil {
			f.Fatal(err)
		}
	}
	wait(time.Second)
}

// A stuck handler does not keep messages run alone, nor the others, for ever.
func TestAloneIsNotForEver(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.vanish(f.message.Key)
		p := f.processor()
		stuck, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			m := idempotency.Message{Key: storage.Key{Scope: "test", ID: "stuck"}}
			_, _ = p.Run(t.Context(), m, func(context.Context) ([]byte, error) { <-stuck; return nil, nil })
		}()
		synctest.Wait()
		begun := time.Now()
		if r, err := p.Run(t.Context(), f.message, succeed); r.Disposition != idempotency.Handled || r.Attempt != 2 {
			t.Errorf("%+v, %v", r, err)
		}
		if took := time.Since(begun); took != 30*time.Second {
			t.Errorf("it waited for %s", took)
		}
		close(stuck)
		<-ended
	})
}

// A handler using the same Processor does not wait for itself.
func TestARunWithinARun(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		inner := storage.Key{Scope: "test", ID: "inner"}
		f.vanish(f.message.Key, inner)
		p := f.processor()
		begun := time.Now()
		r, err := p.Run(t.Context(), f.message, func(ctx context.Context) ([]byte, error) {
			r, err := p.Run(ctx, idempotency.Message{Key: inner}, succeed)
			return r.Value, err
		})
		if string(r.Value) != "result" || err != nil || !time.Now().Equal(begun) {
			t.Errorf("%+v, %v, after %s", r, err, time.Since(begun))
		}
	})
}

// If the claim of a message to be run alone cannot be given back, the next Run
// asks for the same claim, not for another.
func TestAClaimThatIsNotGivenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.vanish(f.message.Key)
		f.store.fail(always(storage.OpFail), nil)
		r := f.becomes(idempotency.Unavailable, unreachable(t))
		f.store.fail(nil, nil)
		r, err := f.runAfter(t.Context(), r.Pending, succeed)
		if r.Disposition != idempotency.Handled || r.Attempt != 2 || f.record().Vanished != 1 {
			t.Errorf("%+v, %v, %+v", r, err, f.record())
		}
	})
}

func TestAPanicIsAFailedAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.options.MaxAttempts = 2
		explode := func(context.Context) ([]byte, error) { panic(errHandler) }
		r, err := f.tries(idempotency.Retry, explode)
		var stack interface{ Stack() []byte }
		if !errors.Is(err, errHandler) || !errors.As(err, &stack) || !strings.Contains(string(stack.Stack()), "TestAPanicIsAFailedAttempt") {
			t.Fatal(err)
		}
		if got := f.record(); got.State != storage.Retryable || got.Attempts != 1 || got.Reason != "panic: handler failed" {
			t.Errorf("%+v", got)
		}
		wait(r.Wait)
		f.becomes(idempotency.DeadLettered, explode)
		if len(f.dead) != 1 || f.dead[0].Attempts != 2 || !errors.Is(f.dead[0].Reason, errHandler) {
			t.Errorf("%+v", f.dead)
		}
	})
}

func TestPanicsOfHooks(t *testing.T) {
	t.Run("dead letter", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fixture) {
			f.options.MaxAttempts = 1
			f.options.DeadLetter = func(context.Context, idempotency.DeadLetter) error { panic("no topic") }
			if _, err := f.tries(idempotency.Retry, failing); !strings.Contains(err.Error(), "panic: no topic") {
				t.Error(err)
			}
		})
	})
	t.Run("compensation", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fixture) {
			f.options.Compensate = func(context.Context, idempotency.Loss) { panic("no way back") }
			_, err := f.tries(idempotency.Lost, func(context.Context) ([]byte, error) {
				_, err := f.memory.Release(t.Context(), f.message.Key)
				return nil, err
			})
			if !errors.Is(err, storage.ErrLeaseLost) || !strings.Contains(err.Error(), "panic: no way back") {
				t.Error(err)
			}
		})
	})
	t.Run("unclaimed handler", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fixture) {
			f.options.FailOpen = true
			f.store.fail(always(storage.OpClaim), nil)
			if _, err := f.tries(idempotency.Retry, func(context.Context) ([]byte, error) { panic(errHandler) }); !errors.Is(err, errHandler) {
				t.Error(err)
			}
		})
	})
}
