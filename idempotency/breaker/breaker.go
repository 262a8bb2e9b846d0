// Package breaker is a circuit breaker for a store that does not answer. After
// failures about some keys in a row, claims fail at once for a while. That spares the
// store, and those who would wait for it.
//
// Invariants:
//
//  1. Extending and settling always reach the store, so that what was begun can
//     end. Only Claim and Inspect are refused.
//  2. Every answer is a success, also a refusal (idempotency.Answered). A call
//     that its caller cancelled is neither success nor failure.
//
// Non-goals: repeating calls, which the Processor does; pausing a consumer,
// which the package consumer does.
package breaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/internal/circuit"
	"github.com/cdc-outbox/cdc-outbox/internal/isnil"
)

// The defaults of Options.
const (
	DefaultFailures = 5
	DefaultOpen     = 10 * time.Second
)

// ErrOpen means that the store was not asked, because it has not answered
// lately.
var ErrOpen = errors.New("circuit breaker is open")

// Options are all optional.
type Options struct {
	// Failures in a row, about so many different keys, open the breaker;
	// DefaultFailures if 0.
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
	onChange          func(from, to string)

	mu      sync.Mutex
	breaker *circuit.Breaker[int, idempotency.Key]
	calls   int
}

// New returns the store behind a closed breaker.
func New(s idempotency.Store, o Options) (*Store, error) {
	switch {
	case isnil.Value(s):
		return nil, errors.New("make circuit breaker: the store is missing")
	case o.Open < 0:
		return nil, fmt.Errorf("make circuit breaker: option Open, %s, is negative", o.Open)
	}
	o.Failures = cmp.Or(o.Failures, DefaultFailures)
	o.Open = cmp.Or(o.Open, DefaultOpen)
	if o.OnChange == nil {
		o.OnChange = func(string, string) {}
	}
	open := func(int) time.Duration { return o.Open }
	return &Store{Store: s, onChange: o.OnChange, breaker: circuit.New[int, idempotency.Key](int(o.Failures), open)}, nil
}

// Claim implements idempotency.Store; its error may be ErrOpen.
func (s *Store) Claim(ctx context.Context, key idempotency.Key, req idempotency.ClaimRequest) (idempotency.Claim, error) {
	n, err := s.begin()
	if err != nil {
		return idempotency.Claim{}, fmt.Errorf("claim %q: %w", key, err)
	}
	c, err := s.Store.Claim(ctx, key, req)
	s.end(ctx, n, key, err)
	return c, err
}

// Inspect implements idempotency.Store; its error may be ErrOpen.
func (s *Store) Inspect(ctx context.Context, key idempotency.Key) (idempotency.Record, error) {
	n, err := s.begin()
	if err != nil {
		return idempotency.Record{}, fmt.Errorf("inspect %q: %w", key, err)
	}
	r, err := s.Store.Inspect(ctx, key)
	s.end(ctx, n, key, err)
	return r, err
}

// begin returns the number of a call that may be made.
func (s *Store) begin() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.breaker.Allows(time.Now()) {
		return 0, ErrOpen
	}
	s.calls++
	s.change(func() { s.breaker.Starts(s.calls) })
	return s.calls, nil
}

// end tells the breaker the outcome of the nth call. Clients do not always say
// that their caller cancelled it, so the context is looked at too.
func (s *Store) end(ctx context.Context, n int, key idempotency.Key, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(func() {
		switch {
		case idempotency.Answered(err):
			s.breaker.Passes(n)
		case errors.Is(err, context.Canceled), errors.Is(ctx.Err(), context.Canceled):
			s.breaker.Cancelled(n)
		default:
			s.breaker.Fails(n, key, time.Now())
		}
	})
}

// change tells OnChange of what f does to the breaker.
func (s *Store) change(f func()) {
	before := s.breaker.State()
	f()
	if after := s.breaker.State(); after != before {
		s.onChange(string(before), string(after))
	}
}

// Maintain implements idempotency.Maintainer for the store behind.
func (s *Store) Maintain(ctx context.Context, report func(error)) {
	if m, ok := s.Store.(idempotency.Maintainer); ok {
		m.Maintain(ctx, report)
	}
}
