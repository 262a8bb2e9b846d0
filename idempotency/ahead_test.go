package idempotency_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/ahead"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// line is two messages a consumer handles in turn.
type line struct {
	*fixture
	runner        *idempotency.Processor
	first, second idempotency.Message
	left          ahead.Claim // left by the first's run for the second
}

func inLine(t *testing.T, f func(t *testing.T, l *line)) {
	t.Helper()
	inBubble(t, func(t *testing.T, fix *fixture) {
		l := &line{fixture: fix, first: fix.message, second: fix.message}
		l.second.Key.ID = "second"
		f(t, l)
	})
}

// runs runs the first message.
func (l *line) runs(h idempotency.Handler, want idempotency.Disposition) {
	l.Helper()
	l.runner = l.processor()
	turn := &ahead.Turn{Key: l.first.Key, Next: func(bool) (storage.Key, storage.Fingerprint, bool) {
		return l.second.Key, l.second.Fingerprint, true
	}}
	r, err := l.runner.Run(ahead.WithTurn(l.Context(), turn), l.first, h)
	if r.Disposition != want {
		l.Fatalf("first: %s (%v), want %s", r.Disposition, err, want)
	}
	l.left, l.message = turn.Following, l.second
}

// follows runs the second message, and counts the Run's requests for the claim.
func (l *line) follows(h idempotency.Handler) (r idempotency.Result, claims int) {
	l.Helper()
	before := l.store.count(storage.OpClaim)
	turn := &ahead.Turn{Key: l.second.Key, Claimed: l.left, Next: func(bool) (k storage.Key, f storage.Fingerprint, ok bool) { return k, f, false }}
	r, err := l.runner.Run(ahead.WithTurn(l.Context(), turn), l.second, h)
	if err != nil {
		l.Fatal("second:", err)
	}
	return r, l.store.count(storage.OpClaim) - before
}

// handledOnce asserts that the second message is handled by the first attempt.
func (l *line) handledOnce(claims int) {
	l.Helper()
	r, asked := l.follows(succeed)
	if r.Disposition != idempotency.Handled || r.Attempt != 1 || asked != claims || l.record().Vanished != 0 {
		l.Errorf("%+v with %d more claims, want %d; %+v", r, asked, claims, l.record())
	}
}

// meeting is a store with the first completion answered only once the second
// claim was asked for, and the other way around.
type meeting struct {
	storage.Store
	claims             int
	claimed, completed chan struct{}
}

func (s *meeting) Claim(ctx context.Context, k storage.Key, r storage.ClaimRequest) (storage.Claim, error) {
	if s.claims++; s.claims == 2 {
		close(s.claimed)
		select {
		case <-s.completed:
		case <-ctx.Done():
			return storage.Claim{}, ctx.Err()
		}
	}
	return s.Store.Claim(ctx, k, r)
}

func (s *meeting) Complete(ctx context.Context, l storage.Lease, result []byte, retention time.Duration) error {
	if l.Key.ID != "second" {
		close(s.completed)
		select {
		case <-s.claimed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.Store.Complete(ctx, l, result, retention)
}

func TestTheNextMessageIsClaimedAtTheMomentOfTheCompletion(t *testing.T) {
	inLine(t, func(t *testing.T, l *line) {
		l.options.Store = &meeting{Store: l.store, claimed: make(chan struct{}), completed: make(chan struct{})}
		l.runs(succeed, idempotency.Handled)
		l.handledOnce(0)
	})
}

func TestADuplicateThatIsNextIsAskedForOnce(t *testing.T) {
	inLine(t, func(t *testing.T, l *line) {
		l.message = l.second
		l.becomes(idempotency.Handled, succeed)
		l.runs(succeed, idempotency.Handled)
		r, claims := l.follows(unreachable(t))
		if r.Disposition != idempotency.Skipped || string(r.Value) != "result" || claims != 0 {
			t.Errorf("%+v with %d more claims", r, claims)
		}
	})
}

func TestAClaimOfTheNextMessageIsGivenBack(t *testing.T) {
	inLine(t, func(t *testing.T, l *line) {
		l.store.fail(always(storage.OpComplete), nil)
		l.runs(succeed, idempotency.Unavailable)
		if l.left == nil || !l.left.Live() {
			t.Fatal("the next message was not claimed")
		}
		l.left.Drop(t.Context())
		if r := l.record(); r.State != storage.Retryable || r.Attempts != 0 {
			t.Errorf("given back: %+v", r)
		}
		l.store.fail(nil, nil)
		l.handledOnce(1)
	})
}

// A claim of an earlier moment may be about to run out.
func TestAClaimOfTheNextMessageDoesNotAge(t *testing.T) {
	inLine(t, func(t *testing.T, l *line) {
		l.runs(succeed, idempotency.Handled)
		wait(29 * time.Second)
		l.handledOnce(1)
	})
}

// The claim is carried out, and the answer lost: the same owner asks again.
func TestAClaimOfTheNextMessageInDoubt(t *testing.T) {
	inLine(t, func(t *testing.T, l *line) {
		l.runs(func(ctx context.Context) ([]byte, error) {
			l.store.fail(nil, once(storage.OpClaim))
			return succeed(ctx)
		}, idempotency.Handled)
		if l.left.Live() {
			t.Fatal("a claim without an answer is live")
		}
		l.handledOnce(1)
	})
}

// A message does not hold up the message before, if the store is silent about its
// key.
func TestAClaimOfTheNextMessageThatHangs(t *testing.T) {
	inLine(t, func(t *testing.T, l *line) {
		var handled time.Time
		var silent atomic.Bool
		l.store.hang = func(op storage.Operation) error {
			if silent.Load() {
				return always(storage.OpClaim)(op)
			}
			return nil
		}
		l.runs(func(ctx context.Context) ([]byte, error) {
			silent.Store(true)
			handled = time.Now()
			return succeed(ctx)
		}, idempotency.Handled)
		if took := time.Since(handled); took > 100*time.Millisecond { // of the bubble's clock
			t.Errorf("the message before waited for %s", took)
		}
		wait(time.Minute)
		silent.Store(false)
		l.handledOnce(1)
	})
}

// A store's panic comes where the caller can recover it.
type panicking struct {
	storage.Store
	claims int
}

func (s *panicking) Claim(ctx context.Context, k storage.Key, r storage.ClaimRequest) (storage.Claim, error) {
	if s.claims++; s.claims == 2 {
		panic("a mistake in the store")
	}
	return s.Store.Claim(ctx, k, r)
}

func TestAClaimOfTheNextMessageThatPanics(t *testing.T) {
	inLine(t, func(t *testing.T, l *line) {
		l.options.Store = &panicking{Store: l.store}
		l.runs(succeed, idempotency.Handled)
		l.handledOnce(1)
	})
}

// A processor failing open makes a single attempt of each call, and a trial
// claims no message ahead of its run.
func TestWhoDoesNotClaimTheNextMessage(t *testing.T) {
	for name, set := range map[string]func(o *idempotency.Options){
		"fail open": func(o *idempotency.Options) { o.FailOpen = true },
		"shadow":    func(o *idempotency.Options) { o.Shadow = true },
	} {
		t.Run(name, func(t *testing.T) {
			inLine(t, func(t *testing.T, l *line) {
				set(&l.options)
				l.runs(succeed, idempotency.Handled)
				if l.left != nil {
					t.Error("the next message was claimed")
				}
			})
		})
	}
}
