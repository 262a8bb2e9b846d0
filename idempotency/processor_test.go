package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// inBubble runs a test on a clock jumping ahead while all wait.
func inBubble(t *testing.T, f func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newFixture(t)) })
}

func TestAMessageIsHandledOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		r := f.becomes(idempotency.Handled, func(ctx context.Context) ([]byte, error) {
			lease, ok := storage.LeaseFrom(ctx)
			if !ok || lease.Key != f.message.Key || lease.Fence != f.record().Fence {
				t.Errorf("lease %+v, %t", lease, ok)
			}
			if fence, ok := idempotency.FenceFrom(ctx); !ok || fence != lease.Fence {
				t.Errorf("fence %d, %t", fence, ok)
			}
			return []byte("result"), nil
		})
		if r.Attempt != 1 || string(r.Value) != "result" || r.Layer != storage.LayerStore {
			t.Errorf("%+v", r)
		}
		for range 3 {
			if r := f.becomes(idempotency.Skipped, unreachable(t)); string(r.Value) != "result" || r.Attempt != 0 {
				t.Errorf("%+v", r)
			}
		}
	})
}

func TestAFailedAttemptIsRepeatedWhenDue(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		wantWait := time.Second
		for n := 1; n < 12; n++ {
			r, err := f.tries(idempotency.Retry, failing)
			if !errors.Is(err, errHandler) || r.Attempt != n || r.Wait < wantWait/2 || r.Wait > wantWait {
				t.Fatalf("attempt %d: %+v, %v", n, r, err)
			}
			early, err := f.tries(idempotency.NotDue, unreachable(t))
			if err == nil || early.Wait != r.Wait || early.Attempt != 0 {
				t.Fatalf("early: %+v, %v", early, err)
			}
			wait(r.Wait)
			wantWait = min(2*wantWait, time.Minute)
		}
		if r := f.becomes(idempotency.Handled, succeed); r.Attempt != 12 {
			t.Errorf("%+v", r)
		}
	})
}

// The handler's service is down for as long as a failover, or a restart, takes.
func TestAnOutageOfMinutesBuriesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		back := time.Now().Add(3 * time.Minute)
		handle := func(context.Context) ([]byte, error) {
			if time.Now().Before(back) {
				return nil, errHandler
			}
			return nil, nil
		}
		for {
			r, err := f.run(handle)
			if r.Disposition == idempotency.Handled {
				return
			}
			if r.Disposition != idempotency.Retry {
				t.Fatalf("%s (%v), %s before it is back", r.Disposition, err, time.Until(back))
			}
			wait(r.Wait)
		}
	})
}

// A handler saying the message is not to blame is called again, however often,
// and the message has all attempts afterwards.
func TestWhatIsNotItsFaultIsTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.options.MaxAttempts = 2
		wantWait := time.Second
		for n := 1; n <= 100; n++ {
			r, err := f.tries(idempotency.Retry, func(context.Context) ([]byte, error) { return nil, idempotency.Transient(errHandler) })
			if !errors.Is(err, errHandler) || r.Attempt != n || r.Wait < wantWait/2 || r.Wait > wantWait {
				t.Fatalf("attempt %d: %+v, %v", n, r, err)
			}
			wait(r.Wait)
			wantWait = min(2*wantWait, time.Minute)
		}
		if got := f.record(); got.Reason != errHandler.Error() || got.Excused != 100 {
			t.Errorf("%+v", got)
		}
		r := f.becomes(idempotency.Retry, failing)
		if r.Wait > time.Second {
			t.Errorf("the first failure waits for %s", r.Wait)
		}
		wait(r.Wait)
		f.becomes(idempotency.DeadLettered, failing)
		if len(f.dead) != 1 || f.dead[0].Attempts != 102 {
			t.Errorf("%+v", f.dead)
		}
	})
}

func TestNotItsFault(t *testing.T) {
	if idempotency.Transient(nil) != nil || idempotency.IsNotItsFault(nil) || idempotency.IsNotItsFault(errHandler) {
		t.Error("nil, or a plain error, is excused")
	}
	excused := fmt.Errorf("ship: %w", idempotency.Transient(errHandler))
	if !idempotency.IsNotItsFault(excused) || idempotency.IsNotItsFault(idempotency.Terminal(excused)) || excused.Error() != "ship: handler failed" {
		t.Error(excused)
	}
}

// pooled is an error of PostgreSQL behind a pooler.
type pooled string

func (e pooled) Error() string    { return "prepared statement trouble" }
func (e pooled) SQLState() string { return string(e) }

// A pooler losing prepared statements is no fault of the message.
func TestAPoolersErrorIsNotItsFault(t *testing.T) {
	for code, excused := range map[string]bool{"26000": true, "42P05": true, "23505": false} {
		err := fmt.Errorf("handle: %w", pooled(code))
		if idempotency.IsNotItsFault(err) != excused || idempotency.IsNotItsFault(idempotency.Terminal(err)) {
			t.Errorf("%s: %t", code, !excused)
		}
	}
}

func TestTheLastAttemptEndsInTheDeadLetter(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.options.MaxAttempts = 2
		r := f.becomes(idempotency.Retry, failing)
		wait(r.Wait)
		if r := f.becomes(idempotency.DeadLettered, failing); r.Attempt != 2 {
			t.Errorf("%+v", r)
		}
		if len(f.dead) != 1 || f.dead[0].Attempts != 2 || f.dead[0].Message != f.message ||
			!errors.Is(f.dead[0].Reason, errHandler) || !errors.Is(f.dead[0].Reason, storage.ErrExhausted) {
			t.Fatalf("%+v", f.dead)
		}
		f.becomes(idempotency.DeadLettered, unreachable(t))
		if r := f.record(); len(f.dead) != 1 || r.State != storage.Failed {
			t.Errorf("%d dead letters, %+v", len(f.dead), r)
		}
	})
}

func TestATerminalErrorEndsInTheDeadLetter(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.becomes(idempotency.DeadLettered, func(context.Context) ([]byte, error) { return nil, idempotency.Terminal(errHandler) })
		if len(f.dead) != 1 || f.dead[0].Attempts != 1 || !errors.Is(f.dead[0].Reason, errHandler) || f.dead[0].Reason.Error() != errHandler.Error() {
			t.Fatalf("%+v", f.dead)
		}
	})
}

func TestTheKeyFailsOnlyBehindItsDeadLetter(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.options.MaxAttempts = 1
		keep := f.options.DeadLetter
		f.options.DeadLetter = func(context.Context, idempotency.DeadLetter) error {
			if s := f.record().State; s != storage.Processing {
				t.Errorf("the key is %s when its dead letter is kept", s)
			}
			return errDown
		}
		r, err := f.tries(idempotency.Retry, failing)
		if !errors.Is(err, errDown) || !errors.Is(err, errHandler) || f.record().State != storage.Retryable {
			t.Fatalf("%v, %s", err, f.record().State)
		}
		f.options.DeadLetter = keep
		wait(r.Wait)
		if r := f.becomes(idempotency.DeadLettered, unreachable(t)); r.Attempt != 0 || len(f.dead) != 1 {
			t.Errorf("%+v, %d dead letters", r, len(f.dead))
		}
	})
}

// However long dead letters cannot be kept, the final dead letter tells how often
// the handler ran, and why.
func TestAnOutageOfTheDeadLettersIsNotCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.options.MaxAttempts = 2
		keep := f.options.DeadLetter
		f.options.DeadLetter = func(context.Context, idempotency.DeadLetter) error { return errDown }
		runs := 0
		for range 100 {
			r := f.becomes(idempotency.Retry, func(context.Context) ([]byte, error) { runs++; return nil, errHandler })
			if r.Wait <= 0 {
				t.Fatalf("%+v", r)
			}
			wait(r.Wait)
		}
		f.options.DeadLetter = keep
		f.becomes(idempotency.DeadLettered, unreachable(t))
		if runs != 2 || len(f.dead) != 1 || f.dead[0].Attempts != 2 {
			t.Fatalf("%d runs, %+v", runs, f.dead)
		}
		reason := f.dead[0].Reason.Error()
		if !strings.Contains(reason, errHandler.Error()) || len(reason) > 300 {
			t.Errorf("reason %q", reason)
		}
		if r := f.becomes(idempotency.DeadLettered, unreachable(t)); r.Reason != reason {
			t.Errorf("%q, want %q", r.Reason, reason)
		}
	})
}

// A failed handler did run, though the dead letter was cut off.
func TestAnAttemptCountsThoughItsDeadLetterIsCutOff(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.options.MaxAttempts = 1
		ctx, cancel := context.WithCancel(t.Context())
		f.options.DeadLetter = func(ctx context.Context, _ idempotency.DeadLetter) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}
		if r, err := f.runWith(ctx, failing); r.Disposition != idempotency.Retry || r.Wait != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		if n := f.record().Attempts; n != 1 {
			t.Errorf("%d attempts", n)
		}
	})
}

func TestAMessageThatContradictsItsKeyIsDeadLettered(t *testing.T) {
	for name, test := range map[string]struct {
		alter func(m *idempotency.Message)
		want  error
	}{
		"another payload": {func(m *idempotency.Message) { m.Fingerprint = idempotency.FingerprintBytes(nil) }, storage.ErrMismatch},
		"a bad key":       {func(m *idempotency.Message) { m.Key.ID = "\x00" }, storage.ErrBadKey},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				f.becomes(idempotency.Handled, succeed)
				before, good := f.record(), f.message
				test.alter(&f.message)
				f.becomes(idempotency.DeadLettered, unreachable(t))
				if len(f.dead) != 1 || !errors.Is(f.dead[0].Reason, test.want) || f.dead[0].Attempts != 0 {
					t.Errorf("%+v", f.dead)
				}
				f.options.DeadLetter = nil
				f.options.MaxAttempts = -1
				if r, err := f.tries(idempotency.Retry, unreachable(t)); !errors.Is(err, test.want) || r.Wait <= 0 {
					t.Errorf("%+v, %v", r, err)
				}
				f.message = good
				if after := f.record(); after.State != before.State || !after.UpdatedAt.Equal(before.UpdatedAt) {
					t.Errorf("%+v, before %+v", after, before)
				}
			})
		})
	}
}

func TestNothingIsGivenUpWithoutADeadLetter(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.options.DeadLetter, f.options.MaxAttempts = nil, -1
		for n := 1; n <= 20; n++ {
			r := f.becomes(idempotency.Retry, func(context.Context) ([]byte, error) { return nil, idempotency.Terminal(errHandler) })
			if r.Attempt != n {
				t.Fatalf("%+v", r)
			}
			wait(r.Wait)
		}
		f.becomes(idempotency.Handled, succeed)
	})
}

func TestSomebodyElsesLease(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.becomes(idempotency.Handled, func(context.Context) ([]byte, error) {
			r, err := f.tries(idempotency.Elsewhere, unreachable(t))
			if err == nil || r.Wait != 30*time.Second {
				t.Errorf("%+v, %v", r, err)
			}
			return nil, nil
		})
	})
}

func TestALargeResultIsDropped(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		dropped := 0
		f.options.Observer.ResultDropped = func(_ idempotency.Message, size int) { dropped = size }
		large := strings.Repeat("x", 1<<20)
		if r := f.becomes(idempotency.Handled, func(context.Context) ([]byte, error) { return []byte(large), nil }); string(r.Value) != large {
			t.Errorf("%d bytes", len(r.Value))
		}
		if r := f.becomes(idempotency.Skipped, unreachable(t)); len(r.Value) != 0 || dropped != len(large) {
			t.Errorf("%d bytes, %d dropped", len(r.Value), dropped)
		}
	})
}

func TestOptionsAreRefusedByName(t *testing.T) {
	good := newFixture(t).options
	for want, alter := range map[string]func(o *idempotency.Options){
		"Store is missing":      func(o *idempotency.Options) { o.Store = nil },
		"DeadLetter is missing": func(o *idempotency.Options) { o.DeadLetter = nil },
		"Lease is -1s":          func(o *idempotency.Options) { o.Lease = -time.Second },
		"Heartbeat, 30s":        func(o *idempotency.Options) { o.Heartbeat = 30 * time.Second },
		"Timeout, 29s":          func(o *idempotency.Options) { o.Timeout = 29 * time.Second },
		"Retention, 1s":         func(o *idempotency.Options) { o.Retention = time.Second },
		"LastRetry, 1s":         func(o *idempotency.Options) { o.FirstRetry, o.LastRetry = time.Minute, time.Second },
		"Retention, 1h0m0s":     func(o *idempotency.Options) { o.Retention, o.LastRetry = time.Hour, time.Hour },
		"Margin is -1ns":        func(o *idempotency.Options) { o.Margin = -1 },
	} {
		o := good
		alter(&o)
		if _, err := idempotency.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := idempotency.New(good); err != nil {
		t.Error(err)
	}
}
