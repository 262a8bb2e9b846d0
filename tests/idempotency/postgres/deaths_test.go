package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// die runs a Run, and lets the process die in the handler: the goroutine ends
// without a settlement.
func die(run func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		run()
	}()
	<-done
}

// A handler taking the process down is counted apart, and given up in the end.
func TestE2ECrashLoop(t *testing.T) {
	var letters []idempotency.DeadLetter
	r := newRunner(t, idempotency.Options{
		Lease: 10 * time.Millisecond, MaxAttempts: 1, MaxVanished: 3,
		DeadLetter: func(_ context.Context, d idempotency.DeadLetter) error { letters = append(letters, d); return nil },
	})
	crashes := 0
	for len(letters) == 0 && crashes <= 3 {
		die(func() {
			r.untilDone(t, message("a"), func(ctx context.Context) ([]byte, error) {
				crashes++
				_, _ = effect("a")(ctx)
				runtime.Goexit()
				return nil, nil
			})
		})
	}
	if crashes != 3 || len(letters) != 1 || letters[0].Attempts != 3 || !errors.Is(letters[0].Reason, storage.ErrExhausted) {
		t.Errorf("%d crashes and dead letters %+v", crashes, letters)
	}
	r.wantEffects(t, "a", 0)
}

// A handler taking the server down is counted, too, although the server forgets
// unwritten rows: the message's claims wait for the disk from then on.
func TestE2EWhatCrashesTheServerIsGivenUp(t *testing.T) {
	server := pgtest.Start(t, pgtest.Setting("wal_writer_delay", "10s"))
	admin := connect(t, server.URL("postgres"))
	create(t, admin, postgres.Options{})
	exec(t, admin, business)
	buried := false
	r := newRunnerOn(t, admin, connect(t, server.URL("postgres")), postgres.Options{}, idempotency.Options{
		MaxAttempts: 2, FirstRetry: time.Millisecond, LastRetry: 2 * time.Millisecond,
		DeadLetter: func(context.Context, idempotency.DeadLetter) error { buried = true; return nil },
	})
	const enough = 6
	crashes := 0
	for ; !buried && crashes < enough; crashes++ {
		innocent := fmt.Sprint("innocent ", crashes)
		if result, err := r.RunUntilDone(limited(t), message(innocent), effect(innocent)); err != nil {
			t.Fatal(result, err)
		}
		_, _ = r.Run(limited(t), message("killer"), func(ctx context.Context) ([]byte, error) {
			server.Restart(t, pgtest.Immediate)
			return effect("killer")(ctx)
		})
		admin.Reset()
	}
	if crashes >= enough {
		t.Errorf("it has crashed the server %d times, and is not given up", crashes)
	}
	t.Logf("given up after %d runs", crashes)
}

// The message of a dead process is handled alone: not while another is.
func TestWhatVanishedIsRunAlone(t *testing.T) {
	gone := newRunner(t, idempotency.Options{Lease: 10 * time.Millisecond})
	die(func() {
		_, _ = gone.Run(t.Context(), message("a"), func(context.Context) ([]byte, error) { runtime.Goexit(); return nil, nil })
	})
	// The Run waits for others for as long as a lease.
	r := newRunnerOn(t, gone.pool, connect(t, gone.url), postgres.Options{}, idempotency.Options{Lease: time.Minute})
	var others atomic.Int64
	running, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	finish := sync.OnceFunc(func() { close(end) })
	defer finish()
	go func() {
		defer close(ended)
		_, _ = r.Run(t.Context(), message("b"), func(context.Context) ([]byte, error) {
			others.Add(1)
			defer others.Add(-1)
			close(running)
			<-end
			return nil, nil
		})
	}()
	<-running
	results := make(chan idempotency.Result, 1)
	go func() {
		results <- r.untilDone(t, message("a"), func(ctx context.Context) ([]byte, error) {
			if n := others.Load(); n != 0 {
				t.Errorf("%d others run", n)
			}
			return effect("a")(ctx)
		})
	}()
	await.Until(t, "the claim to be given back", func() bool {
		record, err := r.store.Inspect(t.Context(), message("a").Key)
		return err == nil && record.State == storage.Retryable && record.Vanished == 1 && record.Attempts == 1
	})
	finish()
	<-ended
	result := <-results
	if result.Disposition != idempotency.Handled || result.Attempt != 2 {
		t.Errorf("%+v", result)
	}
	r.wantEffects(t, "a", 1)
}

// A failure without the message's fault, by the handler's word, is tried again
// beyond MaxAttempts.
func TestWhatIsNotItsFaultIsTriedAgain(t *testing.T) {
	r := newRunner(t, idempotency.Options{
		MaxAttempts: 1, FirstRetry: time.Millisecond, LastRetry: 2 * time.Millisecond,
		DeadLetter: func(context.Context, idempotency.DeadLetter) error { t.Error("a dead letter"); return nil },
	})
	calls := 0
	result := r.untilDone(t, message("a"), func(ctx context.Context) ([]byte, error) {
		if calls++; calls < 5 {
			return nil, idempotency.Transient(errors.New("the warehouse is closed"))
		}
		return effect("a")(ctx)
	})
	if result.Disposition != idempotency.Handled || result.Attempt != 5 {
		t.Errorf("%+v", result)
	}
	r.wantEffects(t, "a", 1)
}

// A panic rolls back, and is a failed attempt.
func TestAPanicIsAFailedAttempt(t *testing.T) {
	r := newRunner(t, idempotency.Options{})
	result, err := r.Run(t.Context(), message("a"), func(ctx context.Context) ([]byte, error) {
		_, _ = effect("a")(ctx)
		panic("no such order")
	})
	if result.Disposition != idempotency.Retry || result.Attempt != 1 || err == nil || !strings.Contains(err.Error(), "panic: no such order") {
		t.Fatalf("%+v, %v", result, err)
	}
	r.wantEffects(t, "a", 0)
	record, err := r.store.Inspect(t.Context(), message("a").Key)
	if err != nil || record.State != storage.Retryable || record.Vanished != 0 || record.Attempts != 1 {
		t.Errorf("%+v, %v", record, err)
	}
}

// A handler beyond HandlerTimeout has failed; the context's cause says so.
func TestHandlerTimeout(t *testing.T) {
	r := newRunner(t, idempotency.Options{HandlerTimeout: time.Millisecond})
	result, err := r.Run(limited(t), message("a"), func(ctx context.Context) ([]byte, error) {
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, storage.ErrHandlerTimeout) {
			t.Error(cause)
		}
		return effect("a")(ctx)
	})
	if result.Disposition != idempotency.Retry || !errors.Is(err, storage.ErrHandlerTimeout) {
		t.Errorf("%+v, %v", result, err)
	}
	record, err := r.store.Inspect(t.Context(), message("a").Key)
	if err != nil || record.State != storage.Retryable || record.Excused != 0 || record.Attempts != 1 {
		t.Errorf("%+v, %v", record, err)
	}
	r.wantEffects(t, "a", 0)
}
