package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// open is a Processor that fails open, with a count.
type open struct {
	*fixture
	processor *idempotency.Processor
	opened    int
	messages  int
}

func inOpenBubble(t *testing.T, f func(o *open)) {
	t.Helper()
	inBubble(t, func(t *testing.T, fixture *fixture) {
		o := &open{fixture: fixture}
		o.options.FailOpen = true
		o.options.Observer.FailOpen = func(idempotency.Message, error) { o.opened++ }
		o.processor = o.fixture.processor()
		f(o)
	})
}

// next handles another message, and returns the time taken.
func (o *open) next(h idempotency.Handler) (idempotency.Result, time.Duration) {
	o.Helper()
	o.messages++
	o.message.Key.ID = fmt.Sprint("message ", o.messages)
	begun := time.Now()
	r, _ := o.processor.Run(o.Context(), o.message, h)
	return r, time.Since(begun)
}

// A silent store costs a message next to nothing after the first second, and a
// refusing store nothing at all.
func TestFailOpenDoesNotWaitForTheStore(t *testing.T) {
	all := always(storage.OpClaim, storage.OpComplete, storage.OpFail, storage.OpExtend)
	for name, test := range map[string]struct {
		breaks      func(o *open)
		first, then time.Duration
	}{
		"silent":   {func(o *open) { o.store.hang = all }, time.Second, 50 * time.Millisecond},
		"refusing": {func(o *open) { o.store.fail(all, nil) }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inOpenBubble(t, func(o *open) {
				// A message is in hand at the beginning.
				r, took := o.next(func(context.Context) ([]byte, error) { test.breaks(o); return []byte("result"), nil })
				if r.Disposition != idempotency.Handled || string(r.Value) != "result" || took > test.first {
					t.Fatalf("%+v after %s", r, took)
				}
				left := test.first - took
				for n := range 1000 {
					r, took := o.next(succeed)
					left -= took
					if r.Disposition != idempotency.Handled || left < 0 && took > test.then {
						t.Fatalf("message %d: %+v after %s", n, r, took)
					}
					wait(20 * time.Millisecond)
				}
				if o.opened != 1001 {
					t.Errorf("%d of 1001 are reported", o.opened)
				}
				if n := o.store.count(storage.OpClaim); n > 20 { // in the background
					t.Errorf("%d claims", n)
				}
			})
		})
	}
}

// Everything claimed before the store fell silent is settled with a single short
// call.
func TestFailOpenEndsWhatItClaimed(t *testing.T) {
	for name, test := range map[string]struct {
		handler idempotency.Handler
		want    idempotency.Disposition
	}{
		"success":     {succeed, idempotency.Handled},
		"failure":     {failing, idempotency.Retry},
		"dead letter": {func(context.Context) ([]byte, error) { return nil, idempotency.Terminal(errHandler) }, idempotency.DeadLettered},
	} {
		t.Run(name, func(t *testing.T) {
			inOpenBubble(t, func(o *open) {
				var begun time.Time
				r, _ := o.next(func(ctx context.Context) ([]byte, error) {
					claimed := o.message
					o.store.hang = always(storage.OpClaim, storage.OpComplete, storage.OpFail)
					for range 3 {
						o.next(succeed)
					}
					o.message = claimed
					begun = time.Now()
					return test.handler(ctx)
				})
				if took := time.Since(begun); took > 50*time.Millisecond {
					t.Errorf("it took %s", took)
				}
				if r.Disposition != test.want || len(o.losses) > 0 {
					t.Fatalf("%+v", r)
				}
				if r.Done() {
					return
				}
				// The claim is still the message's when the store is back.
				o.store.hang = nil
				wait(time.Minute)
				o.next(succeed) // looks for the store
				synctest.Wait()
				o.message.Key.ID = "message 1"
				r, err := o.processor.Run(o.Context(), after(o.message, r.Pending), succeed)
				if r.Disposition != idempotency.Handled || o.record().State != storage.Completed {
					t.Errorf("%+v, %v, %+v", r, err, o.record())
				}
			})
		})
	}
}

func TestFailOpenFindsTheStoreAgain(t *testing.T) {
	inOpenBubble(t, func(o *open) {
		o.store.fail(always(storage.OpClaim), nil)
		for range 10 {
			o.next(succeed)
		}
		o.store.fail(nil, nil)
		back, before := time.Now(), o.opened
		for o.record().State != storage.Completed {
			if _, took := o.next(succeed); took > 0 {
				t.Fatalf("a message waited for %s", took)
			}
			synctest.Wait()
			wait(time.Second)
			if time.Since(back) > time.Minute {
				t.Fatal("the store is not asked")
			}
		}
		if o.opened == before {
			t.Error("a message was claimed before the store was looked for")
		}
		before = o.opened
		for range 100 {
			if r, _ := o.next(succeed); r.Disposition != idempotency.Handled || o.record().State != storage.Completed {
				t.Fatalf("%+v", r)
			}
		}
		if o.opened != before {
			t.Errorf("%d messages were not claimed", o.opened-before)
		}
	})
}

// A message stays given up if the dead letter cannot be written.
func TestFailOpenWithoutDeadLetters(t *testing.T) {
	inOpenBubble(t, func(o *open) {
		o.store.fail(always(storage.OpClaim), nil)
		for range 5 {
			o.next(succeed)
		}
		keep := o.options.DeadLetter
		o.options.DeadLetter = func(context.Context, idempotency.DeadLetter) error { return errDown }
		r, err := o.fixture.processor().Run(o.Context(), o.message, func(context.Context) ([]byte, error) { return nil, idempotency.Terminal(errHandler) })
		if r.Disposition != idempotency.Retry || !errors.Is(err, errDown) {
			t.Fatalf("%+v, %v", r, err)
		}
		o.options.DeadLetter = keep
		r, err = o.fixture.processor().Run(o.Context(), after(o.message, r.Pending), unreachable(t))
		if r.Disposition != idempotency.DeadLettered || len(o.dead) != 1 || o.dead[0].Attempts != 1 {
			t.Errorf("%+v, %v, %+v", r, err, o.dead)
		}
	})
}
