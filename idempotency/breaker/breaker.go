// Package breaker spares a store that cannot be asked, and those who wait for
// it: after some failures in a row claims fail at once, for a while.
//
// Invariants:
//
//  1. What was begun is brought to an end: extending and settling always reach
//     the store. Only Claim and Inspect are refused.
//  2. An answer is a success, whatever it says (idempotency.Answered). A call
//     that its caller cancelled is neither success nor failure.
//
// Non-goals: repeating calls, which the Processor does; pausing a consumer,
// which the package consumer does.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
)

// The defaults of Options.
const (
	DefaultFailures = 5
	DefaultOpen     = 10 * time.Second
)

// ErrOpen says that the store was not asked, because it could not be asked lately.
var ErrOpen = errors.New("circuit breaker is open")

// Options are all optional.
type Options struct {
	// Failures in a row open the breaker; DefaultFailures if 0.
	Failures uint32
	// Open is how long it stays so before one call is let through, which closes
	// it or opens it again; DefaultOpen if 0.
	Open time.Duration
	// OnChange is told of each change: "closed", "open" or "half-open". It is
	// called under the breaker's lock and must not call the store.
	OnChange func(from, to string)
}

// Store is an idempotency.Store behind a circuit breaker. Make one with New. It
// is safe for concurrent use.
type Store struct {
	idempotency.Store // extends and settles
	breaker           *gobreaker.TwoStepCircuitBreaker[struct{}]
}

// New returns the store behind a closed breaker.
func New(s idempotency.Store, o Options) *Store {
	if o.Failures == 0 {
		o.Failures = DefaultFailures
	}
	if o.Open <= 0 {
		o.Open = DefaultOpen
	}
	settings := gobreaker.Settings{
		Timeout:      o.Open,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= o.Failures },
		IsSuccessful: idempotency.Answered,
		IsExcluded:   func(err error) bool { return errors.Is(err, context.Canceled) },
	}
	if o.OnChange != nil {
		settings.OnStateChange = func(_ string, from, to gobreaker.State) { o.OnChange(from.String(), to.String()) }
	}
	return &Store{Store: s, breaker: gobreaker.NewTwoStepCircuitBreaker[struct{}](settings)}
}

// Claim implements idempotency.Store; its error may be ErrOpen.
func (s *Store) Claim(ctx context.Context, key idempotency.Key, req idempotency.ClaimRequest) (idempotency.Claim, error) {
	done, err := s.allow()
	if err != nil {
		return idempotency.Claim{}, fmt.Errorf("claim %q: %w", key, err)
	}
	c, err := s.Store.Claim(ctx, key, req)
	done(outcome(ctx, err))
	return c, err
}

// Inspect implements idempotency.Store; its error may be ErrOpen.
func (s *Store) Inspect(ctx context.Context, key idempotency.Key) (idempotency.Record, error) {
	done, err := s.allow()
	if err != nil {
		return idempotency.Record{}, fmt.Errorf("inspect %q: %w", key, err)
	}
	r, err := s.Store.Inspect(ctx, key)
	done(outcome(ctx, err))
	return r, err
}

// outcome is what the breaker is told of a call. Clients do not always say that
// it was their caller who ended it.
func outcome(ctx context.Context, err error) error {
	if !idempotency.Answered(err) && errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return err
}

func (s *Store) allow() (done func(error), err error) {
	done, err = s.breaker.Allow()
	if err != nil { // open, or half-open with a call under way: the same to a caller
		return nil, ErrOpen
	}
	return done, nil
}
