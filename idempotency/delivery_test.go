package idempotency_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// deliveries are consumers sharing a store. Every fourth call fails, half of them
// after being carried out. Each message is given to each consumer until done.
type deliveries struct {
	*testing.T
	seed      uint64
	consumers int
	messages  int

	mu        sync.Mutex
	succeeded map[string]int // runs of the handler the Processor was told succeeded
	dead      map[string]int
	done      map[string]int
}

// flaky returns a store with failures now and then.
func flaky(s storage.Store, random *rand.Rand) storage.Store {
	var mu sync.Mutex
	now := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(8) == 0
	}
	sometimes := func(storage.Operation) error {
		if now() {
			return errDown
		}
		return nil
	}
	f := &faulty{Store: s}
	f.fail(sometimes, sometimes)
	return f
}

func (d *deliveries) processor(store storage.Store) *idempotency.Processor {
	return processor(d, idempotency.Options{
		Store: store, MaxAttempts: 3,
		DeadLetter: func(_ context.Context, l idempotency.DeadLetter) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.dead[l.Message.Key.ID]++
			return nil
		},
		Compensate: func(_ context.Context, l idempotency.Loss) { d.Errorf("seed %d: lost %+v", d.seed, l) },
	})
}

// consume gives every message to a Processor until done.
func (d *deliveries) consume(p *idempotency.Processor, random *rand.Rand) {
	for _, n := range random.Perm(d.messages) {
		m := idempotency.Message{Key: storage.Key{Scope: "test", ID: strconv.Itoa(n)}}
		for {
			r, err := p.Run(d.Context(), m, d.handler(m.Key.ID, random))
			if r.Done() {
				break
			}
			m.Pending = r.Pending
			if err == nil || r.Disposition == idempotency.Lost {
				d.Errorf("seed %d: %+v, %v", d.seed, r, err)
				return
			}
			wait(r.Wait + time.Millisecond)
		}
		d.mu.Lock()
		d.done[m.Key.ID]++
		d.mu.Unlock()
	}
}

// handler takes up to three leases; messages divisible by seven always fail.
func (d *deliveries) handler(id string, random *rand.Rand) idempotency.Handler {
	return func(ctx context.Context) ([]byte, error) {
		select {
		case <-time.After(time.Duration(random.Int64N(int64(3 * 30 * time.Second)))):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if n, _ := strconv.Atoi(id); n%7 == 0 || random.IntN(10) == 0 {
			return nil, errHandler
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.succeeded[id]++
		return nil, nil
	}
}

// However the store fails, as long as no lease is lost no message is handled
// twice and none is lost.
func TestEveryMessageIsHandledOnceOrDeadLettered(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			d := &deliveries{
				T: t, seed: rand.Uint64(), consumers: 4, messages: 30,
				succeeded: map[string]int{}, dead: map[string]int{}, done: map[string]int{},
			}
			inner := memory.New(memory.Options{})
			var consumers sync.WaitGroup
			for n := range d.consumers {
				random := rand.New(rand.NewPCG(d.seed, uint64(n)))
				p := d.processor(flaky(inner, rand.New(rand.NewPCG(d.seed, uint64(100+n)))))
				consumers.Go(func() { d.consume(p, random) })
			}
			consumers.Wait()
			for n := range d.messages {
				d.check(inner, strconv.Itoa(n))
			}
		})
	}
}

func (d *deliveries) check(s *memory.Store, id string) {
	r, err := s.Inspect(d.Context(), storage.Key{Scope: "test", ID: id})
	if err != nil {
		d.Fatal(err)
	}
	switch {
	case d.done[id] != d.consumers:
		d.Errorf("seed %d: message %s was done by %d consumers of %d", d.seed, id, d.done[id], d.consumers)
	case r.State == storage.Completed && d.succeeded[id] == 0,
		r.State == storage.Failed && d.dead[id] == 0,
		r.State != storage.Completed && r.State != storage.Failed:
		d.Errorf("seed %d: message %s is %s after %d successes and %d dead letters", d.seed, id, r.State, d.succeeded[id], d.dead[id])
	case d.succeeded[id] > 1:
		d.Errorf("seed %d: message %s was handled %d times", d.seed, id, d.succeeded[id])
	}
}

// A shut-down and a lost lease must be told apart by the errors.
func TestErrorsAreTold(t *testing.T) {
	inner := errors.New("inner")
	if idempotency.Terminal(nil) != nil || idempotency.IsTerminal(inner) || idempotency.IsTerminal(nil) {
		t.Error("terminal without having been made so")
	}
	if err := idempotency.Terminal(inner); !idempotency.IsTerminal(err) || !errors.Is(err, inner) || err.Error() != "inner" {
		t.Error(err)
	}
	if err := errors.Join(errDown, idempotency.Terminal(inner)); !idempotency.IsTerminal(err) {
		t.Error(err)
	}
	for _, err := range []error{
		nil, storage.ErrBadKey, storage.ErrBadRequest, storage.ErrMismatch, storage.ErrLeaseLost,
		storage.ErrResultTooLarge, storage.ErrCompleted, errors.Join(inner, storage.ErrLeaseLost),
	} {
		if !storage.Answered(err) {
			t.Errorf("%v is an answer", err)
		}
	}
	if storage.Answered(errDown) || storage.Answered(context.Canceled) {
		t.Error("no answer was taken for one")
	}
}
