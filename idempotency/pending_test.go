package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

func terminal(context.Context) ([]byte, error) { return nil, idempotency.Terminal(errHandler) }

// recalls handles the message once more, with the last Run's pending state.
func (f *fixture) recalls(want idempotency.Disposition, p *idempotency.Pending) (idempotency.Result, error) {
	f.Helper()
	r, err := f.runAfter(f.Context(), p, unreachable(f.T))
	if r.Disposition != want {
		f.Fatalf("%s (%v), want %s", r.Disposition, err, want)
	}
	return r, err
}

// However often the dead letter cannot be kept, the handler is not asked again
// after giving the message up.
func TestAVerdictStandsUntilItsDeadLetterIsKept(t *testing.T) {
	for name, test := range map[string]struct {
		handler  idempotency.Handler
		attempts int
	}{
		"a terminal error": {terminal, 12},
		"the last attempt": {failing, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				f.options.MaxAttempts = test.attempts
				keep := f.options.DeadLetter
				f.options.DeadLetter = func(ctx context.Context, d idempotency.DeadLetter) error {
					if s := f.record().State; s != storage.Processing || d.Attempts != 1 || !errors.Is(d.Reason, errHandler) {
						t.Errorf("the key is %s when %+v is kept", s, d)
					}
					wait(2 * 30 * time.Second) // the lease is extended
					if ctx.Err() != nil {
						t.Error(context.Cause(ctx))
					}
					return errDown
				}
				r, err := f.tries(idempotency.Retry, test.handler)
				var waits []time.Duration
				for range 10 {
					if r.Pending == nil || !errors.Is(err, errDown) || !errors.Is(err, errHandler) || f.record().Attempts != 1 {
						t.Fatalf("%+v, %v, %+v", r, err, f.record())
					}
					waits = append(waits, r.Wait)
					if early, err := f.recalls(idempotency.NotDue, r.Pending); err == nil || early.Pending != r.Pending {
						t.Fatalf("%+v, %v", early, err)
					}
					wait(r.Wait)
					r, err = f.recalls(idempotency.Retry, r.Pending)
				}
				if waits[0] > time.Second || waits[9] < 30*time.Second || !slices.IsSorted(waits[:6]) {
					t.Errorf("waited %v", waits)
				}
				f.options.DeadLetter = keep
				wait(r.Wait)
				r, _ = f.recalls(idempotency.DeadLettered, r.Pending)
				if len(f.dead) != 1 || f.dead[0].Attempts != 1 || r.Pending != nil || r.Reason != f.dead[0].Reason.Error() || f.record().State != storage.Failed {
					t.Errorf("%+v, %+v, %s", r, f.dead, f.record().State)
				}
			})
		})
	}
}

// A handler's outcome is settled when the store is back, in the same lease,
// though over, and without a second dead letter.
func TestAVerdictIsSettledWhenTheStoreIsBack(t *testing.T) {
	for name, test := range map[string]struct {
		op      storage.Operation
		handler idempotency.Handler
		want    idempotency.Disposition
		state   storage.State
	}{
		"success":          {storage.OpComplete, succeed, idempotency.Handled, storage.Completed},
		"a terminal error": {storage.OpFail, terminal, idempotency.DeadLettered, storage.Failed},
	} {
		for _, carriedOut := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, carried out %t", name, carriedOut), func(t *testing.T) {
				inBubble(t, func(t *testing.T, f *fixture) {
					if carriedOut {
						f.store.fail(nil, always(test.op))
					} else {
						f.store.fail(always(test.op), nil)
					}
					r := f.becomes(idempotency.Unavailable, test.handler)
					for range 3 {
						wait(30 * time.Second)
						r, _ = f.recalls(idempotency.Unavailable, r.Pending)
					}
					f.store.fail(nil, nil)
					r, _ = f.recalls(test.want, r.Pending)
					if test.want == idempotency.Handled && string(r.Value) != "result" || r.Attempt != 0 || len(f.losses) != 0 {
						t.Errorf("%+v, %d losses", r, len(f.losses))
					}
					if got := f.record(); got.State != test.state || got.Attempts != 1 || len(f.dead) > 1 {
						t.Errorf("%+v, %d dead letters", got, len(f.dead))
					}
				})
			})
		}
	}
}

// Somebody else claimed the key meanwhile: the effects of both may be there.
func TestAVerdictThatComesTooLateIsCompensated(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.store.fail(always(storage.OpComplete), nil)
		r := f.becomes(idempotency.Unavailable, succeed)
		f.store.fail(nil, nil)
		if _, err := f.memory.Release(t.Context(), f.message.Key); err != nil {
			t.Fatal(err)
		}
		lost, err := f.recalls(idempotency.Lost, r.Pending)
		if !errors.Is(err, storage.ErrLeaseLost) || lost.Pending != nil {
			t.Errorf("%+v, %v", lost, err)
		}
		if len(f.losses) != 1 || f.losses[0].Lease != r.Pending.Lease || string(f.losses[0].Result) != "result" {
			t.Errorf("%+v", f.losses)
		}
		f.becomes(idempotency.Handled, succeed)
	})
}

func TestFailOpenDoesNotWaitToRecordAVerdict(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		opened := 0
		f.options.FailOpen = true
		f.options.Observer.FailOpen = func(idempotency.Message, error) { opened++ }
		f.store.fail(always(storage.OpComplete, storage.OpClaim), nil)
		handled := &idempotency.Pending{
			Key: f.message.Key, Attempt: 1, Lease: storage.Lease{Key: f.message.Key, Owner: "owner"}, Value: []byte("result"),
		}
		if r, _ := f.recalls(idempotency.Handled, handled); string(r.Value) != "result" || opened != 1 {
			t.Errorf("%+v, %d", r, opened)
		}
		keep := f.options.DeadLetter
		f.options.DeadLetter = func(context.Context, idempotency.DeadLetter) error { return errDown }
		r := f.becomes(idempotency.Retry, terminal)
		r, _ = f.recalls(idempotency.Retry, r.Pending)
		f.options.DeadLetter = keep
		_, _ = f.recalls(idempotency.DeadLettered, r.Pending)
		if len(f.dead) != 1 || f.dead[0].Attempts != 1 || r.Pending.Tries != 2 {
			t.Errorf("%+v, %+v", f.dead, r.Pending)
		}
	})
}

// A store may do as asked and deny the success, again and again: too few replicas
// have the write. Attempts never made must not be used up.
func TestAClaimInDoubtIsOneAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.store.fail(nil, always(storage.OpClaim))
		r := f.becomes(idempotency.Unavailable, unreachable(t))
		for range 2 * 12 {
			wait(2 * 30 * time.Second)
			r, _ = f.recalls(idempotency.Unavailable, r.Pending)
		}
		f.store.fail(nil, nil)
		r, err := f.runAfter(t.Context(), r.Pending, failing)
		if r.Disposition != idempotency.Retry || r.Attempt != 1 || r.Pending != nil {
			t.Fatalf("%+v, %v, %d dead letters", r, err, len(f.dead))
		}
		wait(r.Wait)
		if r := f.becomes(idempotency.Handled, succeed); r.Attempt != 2 {
			t.Errorf("%+v", r)
		}
	})
}

// inItsOwnWay carries out the first claim and loses the answer; for the second
// the first is still in the way, as on a connection not yet given up by the
// server.
type inItsOwnWay struct {
	storage.Store
	claims int
}

func (s *inItsOwnWay) Claim(ctx context.Context, k storage.Key, r storage.ClaimRequest) (storage.Claim, error) {
	s.claims++
	if s.claims == 2 {
		return storage.Claim{Outcome: storage.InProgress, Wait: time.Second}, nil
	}
	c, err := s.Store.Claim(ctx, k, r)
	if s.claims == 1 {
		return storage.Claim{}, errors.Join(errDown, err)
	}
	return c, err
}

func TestAClaimInDoubtThatIsInItsOwnWayIsOneAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.options.Store = &inItsOwnWay{Store: f.memory}
		r := f.becomes(idempotency.Elsewhere, unreachable(t))
		r, err := f.runAfter(t.Context(), r.Pending, succeed)
		if r.Disposition != idempotency.Handled || r.Attempt != 1 || r.Pending != nil || f.record().Vanished != 0 {
			t.Errorf("%+v, %v, %+v", r, err, f.record())
		}
	})
}

// Nor does the dead letter of a message given up depend on them.
func TestAClaimInDoubtKeepsTheVerdict(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		keep := f.options.DeadLetter
		f.options.DeadLetter = func(context.Context, idempotency.DeadLetter) error { return errDown }
		r := f.becomes(idempotency.Retry, terminal)
		f.options.DeadLetter = keep
		f.store.fail(nil, always(storage.OpClaim))
		wait(r.Wait)
		r, _ = f.recalls(idempotency.Unavailable, r.Pending)
		f.store.fail(nil, nil)
		r, _ = f.recalls(idempotency.DeadLettered, r.Pending)
		if len(f.dead) != 1 || f.dead[0].Attempts != 1 || r.Pending != nil {
			t.Errorf("%+v, %+v", r, f.dead)
		}
	})
}

// Another message's pending state is not taken for the present message's.
func TestWhatIsPendingIsOfOneMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		other := &idempotency.Pending{Key: storage.Key{Scope: "test", ID: "other"}, Attempt: 1, Reason: errHandler}
		ran := false
		r, _ := f.runAfter(t.Context(), other, func(context.Context) ([]byte, error) { ran = true; return nil, errHandler })
		if !ran || r.Pending != nil {
			t.Errorf("ran %t, %+v", ran, r)
		}
	})
}

func ExamplePending() {
	topicIsThere := false
	processor, err := idempotency.New(idempotency.Options{
		Store: memory.New(memory.Options{}), FirstRetry: time.Millisecond,
		DeadLetter: func(_ context.Context, d idempotency.DeadLetter) error {
			if !topicIsThere {
				return errors.New("there is no topic for dead letters")
			}
			fmt.Println("dead letter:", d.Reason)
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer processor.Close()
	m := idempotency.Message{Key: storage.Key{Scope: "shipping", ID: "1"}}
	handler := func(context.Context) ([]byte, error) {
		fmt.Println("the handler runs")
		return nil, idempotency.Terminal(errors.New("no such address"))
	}
	r, _ := processor.Run(context.Background(), m, handler)
	for !r.Done() {
		<-time.After(r.Wait)
		topicIsThere, m.Pending = true, r.Pending
		r, _ = processor.Run(context.Background(), m, handler)
	}
	fmt.Println(r.Disposition)
	// Output:
	// the handler runs
	// dead letter: no such address
	// dead_lettered
}
