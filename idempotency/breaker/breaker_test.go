package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/breaker"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("store is down")

// failing is a store whose calls fail as told.
type failing struct {
	idempotency.Store
	err   error
	calls int
}

func (s *failing) Claim(ctx context.Context, k idempotency.Key, r idempotency.ClaimRequest) (idempotency.Claim, error) {
	s.calls++
	if s.err != nil {
		return idempotency.Claim{}, s.err
	}
	return s.Store.Claim(ctx, k, r)
}

func (s *failing) Inspect(ctx context.Context, k idempotency.Key) (idempotency.Record, error) {
	s.calls++
	if s.err != nil {
		return idempotency.Record{}, s.err
	}
	return s.Store.Inspect(ctx, k)
}

var key = idempotency.Key{Scope: "test", ID: "key"}

func claim(s idempotency.Store) (idempotency.Claim, error) { return claimKey(s, key) }

func claimKey(s idempotency.Store, key idempotency.Key) (idempotency.Claim, error) {
	return s.Claim(context.Background(), key, idempotency.ClaimRequest{Owner: "owner", Lease: time.Hour, Retention: time.Hour})
}

func TestTheBreakerOpensAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []string
		inner := &failing{Store: memory.NewStore(memory.StoreOptions{}), err: errDown}
		s := must.Get(breaker.New(inner, breaker.Options{
			Failures: 3, Open: time.Minute,
			OnChange: func(from, to string) { changes = append(changes, from+" to "+to) },
		}))(t)
		for n := range 3 {
			for range 10 { // one key alone does not open it
				if _, err := claimKey(s, idempotency.Key{Scope: "test", ID: fmt.Sprint(n)}); !errors.Is(err, errDown) {
					t.Fatal(err)
				}
				if n == 2 {
					break
				}
			}
		}
		for range 10 {
			if _, err := claim(s); !errors.Is(err, breaker.ErrOpen) || idempotency.Answered(err) {
				t.Fatal(err)
			}
			if _, err := s.Inspect(t.Context(), key); !errors.Is(err, breaker.ErrOpen) {
				t.Fatal(err)
			}
		}
		if inner.calls != 21 {
			t.Errorf("%d calls", inner.calls)
		}
		<-time.After(time.Minute + 1)
		if _, err := claim(s); !errors.Is(err, errDown) {
			t.Fatal(err)
		}
		<-time.After(time.Minute + 1)
		inner.err = nil
		if c, err := claim(s); err != nil || c.Outcome != idempotency.Claimed {
			t.Fatalf("%s, %v", c.Outcome, err)
		}
		want := []string{"closed to open", "open to half-open", "half-open to open", "open to half-open", "half-open to closed"}
		if !slices.Equal(changes, want) {
			t.Errorf("%q", changes)
		}
	})
}

func TestAnswersAndCancellationsDoNotOpenIt(t *testing.T) {
	inner := &failing{Store: memory.NewStore(memory.StoreOptions{})}
	s := must.Get(breaker.New(inner, breaker.Options{}))(t)
	for _, err := range []error{idempotency.ErrMismatch, idempotency.ErrBadKey, context.Canceled} {
		inner.err = fmt.Errorf("claim: %w", err)
		for range 10 {
			if _, got := claim(s); !errors.Is(got, err) {
				t.Fatalf("%v, want %v", got, err)
			}
		}
	}
}

// Some clients tell of the connection that they closed, not of the context.
func TestACancelledCallIsNotCountedWhateverItsError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	inner := &failing{Store: memory.NewStore(memory.StoreOptions{}), err: errDown}
	s := must.Get(breaker.New(inner, breaker.Options{Failures: 1}))(t)
	for range 3 {
		_, err := s.Claim(ctx, key, idempotency.ClaimRequest{Owner: "owner", Lease: time.Hour, Retention: time.Hour})
		if !errors.Is(err, errDown) {
			t.Fatal(err)
		}
		if _, err := s.Inspect(ctx, key); !errors.Is(err, errDown) {
			t.Fatal(err)
		}
	}
}

func TestWhatWasBegunIsBroughtToAnEnd(t *testing.T) {
	inner := &failing{Store: memory.NewStore(memory.StoreOptions{})}
	s := must.Get(breaker.New(inner, breaker.Options{Failures: 1, Open: time.Hour}))(t)
	c, err := claim(s)
	if err != nil {
		t.Fatal(err)
	}
	inner.err = errDown
	_, _ = s.Inspect(t.Context(), key)
	if _, err := claim(s); !errors.Is(err, breaker.ErrOpen) {
		t.Fatal(err)
	}
	if err := s.Extend(t.Context(), c.Lease, time.Hour); err != nil {
		t.Error(err)
	}
	if err := s.Complete(t.Context(), c.Lease, nil, time.Hour); err != nil {
		t.Error(err)
	}
}

func ExampleNew() {
	store, err := breaker.New(memory.NewStore(memory.StoreOptions{}), breaker.Options{
		Failures: 3,
		Open:     5 * time.Second,
		OnChange: func(from, to string) { fmt.Println(from, "to", to) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := store.Claim(context.Background(), key, idempotency.ClaimRequest{
		Owner: idempotency.NewOwner(), Lease: time.Minute, Retention: time.Hour,
	})
	fmt.Println(c.Outcome, err)
	// Output: claimed <nil>
}
