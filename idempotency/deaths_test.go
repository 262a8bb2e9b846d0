package idempotency_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// mortal is a process's way to a store that all processes share. A dead process
// asks for nothing any more.
type mortal struct {
	storage.Store
	dead atomic.Bool
}

func (s *mortal) Claim(ctx context.Context, k storage.Key, r storage.ClaimRequest) (storage.Claim, error) {
	if s.dead.Load() {
		return storage.Claim{}, errDown
	}
	return s.Store.Claim(ctx, k, r)
}

func (s *mortal) Extend(ctx context.Context, l storage.Lease, d time.Duration) error {
	if s.dead.Load() {
		return errDown
	}
	return s.Store.Extend(ctx, l, d)
}

func (s *mortal) Complete(ctx context.Context, l storage.Lease, result []byte, retention time.Duration) error {
	if s.dead.Load() {
		return errDown
	}
	return s.Store.Complete(ctx, l, result, retention)
}

func (s *mortal) Fail(ctx context.Context, l storage.Lease, f storage.Failure) error {
	if s.dead.Load() {
		return errDown
	}
	return s.Store.Fail(ctx, l, f)
}

// village is a number of messages that processes handle, one process after
// another, all messages at once. A process lives until it has handled all, or
// die is called.
type village struct {
	*testing.T
	store *memory.Store
	mu    sync.Mutex
	done  map[string]idempotency.Disposition
	runs  map[string]int
	dead  map[string]idempotency.DeadLetter
}

func newVillage(t *testing.T) *village {
	return &village{
		T: t, store: memory.New(memory.Options{}), done: map[string]idempotency.Disposition{},
		runs: map[string]int{}, dead: map[string]idempotency.DeadLetter{},
	}
}

// live runs a process on the messages that are not done, until it dies or they
// are.
func (v *village) live(ids []string, handle func(ctx context.Context, id string, die func())) {
	store := &mortal{Store: v.store}
	p, err := idempotency.New(idempotency.Options{
		Store: store,
		DeadLetter: func(_ context.Context, d idempotency.DeadLetter) error {
			if store.dead.Load() {
				return errDown
			}
			v.mu.Lock()
			defer v.mu.Unlock()
			v.dead[d.Message.Key.ID] = d
			return nil
		},
	})
	if err != nil {
		v.Fatal(err)
	}
	ctx, end := context.WithCancel(v.Context())
	defer end()
	die := func() { store.dead.Store(true); end() }
	var workers sync.WaitGroup
	for _, id := range ids {
		workers.Go(func() {
			m := idempotency.Message{Key: storage.Key{Scope: "village", ID: id}}
			for !store.dead.Load() {
				r, _ := p.Run(ctx, m, func(ctx context.Context) ([]byte, error) {
					if store.dead.Load() {
						return nil, errDown
					}
					v.count(id)
					handle(ctx, id, die)
					return nil, ctx.Err()
				})
				if r.Done() && !store.dead.Load() {
					v.settle(id, r.Disposition)
					return
				}
				select {
				case <-time.After(r.Wait):
				case <-ctx.Done():
				}
			}
		})
	}
	workers.Wait()
}

func (v *village) count(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.runs[id]++
}

func (v *village) settle(id string, d idempotency.Disposition) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done[id] = d
}

// left returns those that are not done.
func (v *village) left(ids []string) (left []string) {
	for _, id := range ids {
		if v.done[id] == 0 {
			left = append(left, id)
		}
	}
	return left
}

func (v *village) untilAllAreDone(ids []string, handle func(ctx context.Context, id string, die func())) {
	for range 1000 {
		left := v.left(ids)
		if len(left) == 0 {
			return
		}
		v.live(left, handle)
	}
	v.Fatalf("not done: %v", v.left(ids))
}

func work(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Whatever was in hand when a process died is tried again alone: so a message
// that kills processes is buried, and no other.
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

// A handler that is stuck does not keep those that run alone, nor the others,
// for ever.
func TestAloneIsNotForEver(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.vanish(f.message.Key)
		p, err := idempotency.New(f.options)
		if err != nil {
			t.Fatal(err)
		}
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

// A handler that uses the same Processor does not wait for itself.
func TestARunWithinARun(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		inner := storage.Key{Scope: "test", ID: "inner"}
		f.vanish(f.message.Key, inner)
		p, err := idempotency.New(f.options)
		if err != nil {
			t.Fatal(err)
		}
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

// If the claim of a message that is to be run alone cannot be given back, the
// next Run asks for the same claim, not for one more.
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
