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

// closes closes the Processor on a goroutine. The channel is closed afterwards.
func closes(p *idempotency.Processor) <-chan struct{} {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		p.Close()
	}()
	return closed
}

// waits asserts that Close has not returned, once all goroutines wait.
func waits(t *testing.T, closed <-chan struct{}) {
	t.Helper()
	synctest.Wait()
	select {
	case <-closed:
		t.Fatal("Close has not waited")
	default:
	}
}

func TestCloseWaitsForTheClaimOfTheNextMessage(t *testing.T) {
	inLine(t, func(t *testing.T, l *line) {
		answer := make(chan struct{})
		l.runs(func(ctx context.Context) ([]byte, error) {
			l.store.deaf = answer
			return succeed(ctx)
		}, idempotency.Handled)
		closed := closes(l.runner)
		waits(t, closed)
		close(answer)
		<-closed
		// The answer came too late: the lease keeps others away until its end.
		if r := l.record(); r.State != storage.Processing {
			t.Fatalf("the key is %s", r.State)
		}
		l.becomes(idempotency.Elsewhere, unreachable(t))
		wait(30 * time.Second)
		l.becomes(idempotency.Handled, succeed)
	})
}

func TestCloseEndsTheLookForTheStore(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprintf("deaf to its context: %t", deaf), func(t *testing.T) {
			inOpenBubble(t, func(o *open) {
				o.store.fail(always(storage.OpClaim), nil)
				for range 3 {
					o.next(succeed)
				}
				o.store.fail(nil, nil)
				wait(2 * time.Second)
				answer := make(chan struct{})
				if deaf {
					o.store.deaf = answer
				} else {
					o.store.hang = always(storage.OpClaim)
				}
				asked := o.store.count(storage.OpClaim)
				o.next(succeed)
				synctest.Wait()
				if o.store.count(storage.OpClaim) != asked+1 {
					t.Fatal("the store is not looked for")
				}
				begun, closed := time.Now(), closes(o.processor)
				if deaf {
					waits(t, closed)
				}
				close(answer)
				<-closed
				if took := time.Since(begun); took != 0 {
					t.Errorf("Close took %s", took)
				}
			})
		})
	}
}

func TestCloseWaitsForRunsAndRefusesFurther(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		p := f.processor()
		ends, ran := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ran)
			r, err := p.Run(t.Context(), f.message, func(ctx context.Context) ([]byte, error) { <-ends; return succeed(ctx) })
			if r.Disposition != idempotency.Handled || err != nil {
				t.Errorf("%+v, %v", r, err)
			}
		}()
		synctest.Wait()
		first, second := closes(p), closes(p)
		waits(t, first)
		waits(t, second)

		calls := len(f.store.calls)
		pending := &idempotency.Pending{Key: storage.Key{Scope: "test", ID: "late"}, Owner: "before"}
		late := idempotency.Message{Key: pending.Key, Pending: pending}
		begun := time.Now()
		for name, call := range map[string]func() (idempotency.Result, error){
			"Run":          func() (idempotency.Result, error) { return p.Run(t.Context(), late, unreachable(t)) },
			"RunUntilDone": func() (idempotency.Result, error) { return p.RunUntilDone(t.Context(), late, unreachable(t)) },
			"Refuse":       func() (idempotency.Result, error) { return p.Refuse(t.Context(), late, storage.ErrBadKey) },
		} {
			r, err := call()
			if r.Disposition != idempotency.Unavailable || r.Wait <= 0 || r.Pending != pending || !errors.Is(err, storage.ErrClosed) {
				t.Errorf("%s after Close: %+v, %v", name, r, err)
			}
		}
		if len(f.store.calls) != calls || len(f.dead) > 0 || !time.Now().Equal(begun) {
			t.Errorf("calls after Close: %d of the store, %d dead letters, after %s", len(f.store.calls)-calls, len(f.dead), time.Since(begun))
		}

		close(ends)
		<-first
		<-second
		if f.record().State != storage.Completed {
			t.Errorf("after Close: %+v", f.record())
		}
		<-ran
		p.Close()
	})
}
