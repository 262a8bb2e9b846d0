package idempotency_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// mortal is a process's way to a store all processes share. A dead process asks
// for nothing any more.
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

// village is a number of messages and a series of processes, each handling all
// messages at once. A process lives until all are handled, or die is called.
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

// live runs a process on the unfinished messages, until they are done or the
// process dies.
func (v *village) live(ids []string, handle func(ctx context.Context, id string, die func())) {
	store := &mortal{Store: v.store}
	p := processor(v, idempotency.Options{
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
				work(ctx, r.Wait)
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

// left returns the unfinished messages.
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

// work takes d. work makes no timer due at once: in a bubble, several
// goroutines receiving from such timers crash the race detector (Go 1.26.8:
// runtime.maybeRunChan runs them side by side in the bubble's single race
// context).
func work(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
