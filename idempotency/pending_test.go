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
)

func terminal(context.Context) ([]byte, error) { return nil, idempotency.Terminal(errHandler) }

// recalls handles the message once more, with the verdict of the last Run.
func (f *fixture) recalls(want idempotency.Disposition, v *idempotency.Verdict) (idempotency.Result, error) {
	f.Helper()
	r, err := f.runWith(idempotency.ContextWithVerdict(f.Context(), v), unreachable(f.T))
	if r.Disposition != want {
		f.Fatalf("%s (%v), want %s", r.Disposition, err, want)
	}
	return r, err
}

// However often the dead letter cannot be kept, the handler that gave the
// message up is not asked again.
func TestAVerdictStandsUntilItsDeadLetterIsKept(t *testing.T) {
	for name, test := range map[string]struct {
		handler  idempotency.Handler
		attempts int
	}{
		"a terminal error": {terminal, idempotency.DefaultMaxAttempts},
		"the last attempt": {failing, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				f.options.MaxAttempts = test.attempts
				keep := f.options.DeadLetter
				f.options.DeadLetter = func(ctx context.Context, d idempotency.DeadLetter) error {
					if s := f.record().State; s != idempotency.Processing || d.Attempts != 1 || !errors.Is(d.Reason, errHandler) {
						t.Errorf("the key is %s when %+v is kept", s, d)
					}
					wait(2 * idempotency.DefaultLease) // which is extended
					if ctx.Err() != nil {
						t.Error(context.Cause(ctx))
					}
					return errDown
				}
				r, err := f.tries(idempotency.Retry, test.handler)
				var waits []time.Duration
				for range 10 {
					if r.Verdict == nil || !errors.Is(err, errDown) || !errors.Is(err, errHandler) || f.record().Attempts != 1 {
						t.Fatalf("%+v, %v, %+v", r, err, f.record())
					}
					waits = append(waits, r.Wait)
					if early, err := f.recalls(idempotency.Retry, r.Verdict); !errors.Is(err, idempotency.ErrNotDue) || early.Verdict != r.Verdict {
						t.Fatalf("%+v, %v", early, err)
					}
					wait(r.Wait)
					r, err = f.recalls(idempotency.Retry, r.Verdict)
				}
				if waits[0] > time.Second || waits[9] < 30*time.Second || !slices.IsSorted(waits[:6]) {
					t.Errorf("waited %v", waits)
				}
				f.options.DeadLetter = keep
				wait(r.Wait)
				r, _ = f.recalls(idempotency.DeadLettered, r.Verdict)
				if len(f.dead) != 1 || f.dead[0].Attempts != 1 || r.Verdict != nil || r.Reason != f.dead[0].Reason.Error() || f.record().State != idempotency.Failed {
					t.Errorf("%+v, %+v, %s", r, f.dead, f.record().State)
				}
			})
		})
	}
}

// What a handler came to is settled when the store is back, in the same lease,
// though it is over, and without a second dead letter.
func TestAVerdictIsSettledWhenTheStoreIsBack(t *testing.T) {
	for name, test := range map[string]struct {
		op      idempotency.Operation
		handler idempotency.Handler
		want    idempotency.Disposition
		state   idempotency.State
	}{
		"success":          {idempotency.OpComplete, succeed, idempotency.Handled, idempotency.Completed},
		"a terminal error": {idempotency.OpFail, terminal, idempotency.DeadLettered, idempotency.Failed},
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
						wait(idempotency.DefaultLease)
						r, _ = f.recalls(idempotency.Unavailable, r.Verdict)
					}
					f.store.fail(nil, nil)
					r, _ = f.recalls(test.want, r.Verdict)
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
		f.store.fail(always(idempotency.OpComplete), nil)
		r := f.becomes(idempotency.Unavailable, succeed)
		f.store.fail(nil, nil)
		if _, err := f.memory.Release(t.Context(), f.message.Key); err != nil {
			t.Fatal(err)
		}
		lost, err := f.recalls(idempotency.Lost, r.Verdict)
		if !errors.Is(err, idempotency.ErrLeaseLost) || lost.Verdict != nil {
			t.Errorf("%+v, %v", lost, err)
		}
		if len(f.losses) != 1 || f.losses[0].Lease != r.Verdict.Lease || string(f.losses[0].Result) != "result" {
			t.Errorf("%+v", f.losses)
		}
		f.becomes(idempotency.Handled, succeed)
	})
}

func TestFailOpenDoesNotWaitToRecordAVerdict(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		opened := 0
		f.options.OnUnavailable = idempotency.FailOpen
		f.options.Observer.FailOpen = func(idempotency.Message, error) { opened++ }
		f.store.fail(always(idempotency.OpComplete, idempotency.OpClaim), nil)
		handled := &idempotency.Verdict{Lease: idempotency.Lease{Key: f.message.Key, Owner: "owner"}, Value: []byte("result")}
		if r, _ := f.recalls(idempotency.Handled, handled); string(r.Value) != "result" || opened != 1 {
			t.Errorf("%+v, %d", r, opened)
		}
		keep := f.options.DeadLetter
		f.options.DeadLetter = func(context.Context, idempotency.DeadLetter) error { return errDown }
		r := f.becomes(idempotency.Retry, terminal)
		r, _ = f.recalls(idempotency.Retry, r.Verdict)
		f.options.DeadLetter = keep
		f.recalls(idempotency.DeadLettered, r.Verdict)
		if len(f.dead) != 1 || f.dead[0].Attempts != 1 || r.Verdict.Tries != 2 {
			t.Errorf("%+v, %+v", f.dead, r.Verdict)
		}
	})
}

// A verdict is on one message: the contexts of hooks and handlers pass it on.
func TestAVerdictIsOnOneMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		other := &idempotency.Verdict{Lease: idempotency.Lease{Key: idempotency.Key{Scope: "test", ID: "other"}}}
		ctx := idempotency.ContextWithVerdict(t.Context(), other)
		ran := false
		r, _ := f.runWith(ctx, func(context.Context) ([]byte, error) { ran = true; return nil, errHandler })
		if !ran || r.Verdict != nil {
			t.Errorf("ran %t, %+v", ran, r)
		}
		if idempotency.ContextWithVerdict(ctx, nil) != ctx || idempotency.VerdictOn(ctx, other.Lease.Key) != other {
			t.Error("the verdict is not in the context")
		}
	})
}

func ExampleContextWithVerdict() {
	topicIsThere := false
	processor, err := idempotency.NewProcessor(idempotency.Options{
		Store: memory.NewStore(memory.StoreOptions{}), FirstRetry: time.Millisecond,
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
	m := idempotency.Message{Key: idempotency.Key{Scope: "shipping", ID: "1"}}
	handler := func(context.Context) ([]byte, error) {
		fmt.Println("the handler runs")
		return nil, idempotency.Terminal(errors.New("no such address"))
	}
	r, _ := processor.Run(context.Background(), m, handler)
	for !r.Done() {
		<-time.After(r.Wait)
		topicIsThere = true
		r, _ = processor.Run(idempotency.ContextWithVerdict(context.Background(), r.Verdict), m, handler)
	}
	fmt.Println(r.Disposition)
	// Output:
	// the handler runs
	// dead letter: no such address
	// dead_lettered
}
