package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// phase is a kind of call.
type phase int

const (
	prepare   phase = iota // preconditions; not reported
	bare                   // a round trip of the client, with a write
	work                   // a handler's work without us
	claim                  // of a new message; where there is work, everything, work included
	complete               // of the claimed message
	duplicate              // the claim of a completed message
	trusted                // the same, answered by memory alone
	lookUp                 // the window's answer by itself
	phases
)

// message is the subject of the calls of a single round.
type message struct {
	idempotency.Message
	lease storage.Lease
}

// call is done once per message and phase.
type call func(ctx context.Context, m *message) error

// subject is a store or guard to be measured; missing calls are nil.
type subject struct {
	name  string
	calls [phases]call
}

// Times ending during no measurement.
const (
	lease     = time.Hour
	retention = 24 * time.Hour
)

// stored is a handler's result, kept for duplicates.
var stored = make([]byte, 100)

// newMessages returns messages not seen before.
func newMessages(scope string, n int) ([]message, error) {
	all := make([]message, n)
	for i := range all {
		id, err := outbox.NewID()
		if err != nil {
			return nil, err
		}
		all[i].Key = storage.Key{Scope: scope, ID: id.String()}
		all[i].Fingerprint = idempotency.FingerprintBytes(id[:])
	}
	return all, nil
}

// ofStore are the calls of a store.
func ofStore(s storage.Store) (calls [phases]call) {
	calls[claim] = func(ctx context.Context, m *message) error {
		c, err := claimed(ctx, s, m, storage.Claimed)
		m.lease = c.Lease
		return err
	}
	calls[complete] = func(ctx context.Context, m *message) error { return s.Complete(ctx, m.lease, stored, retention) }
	calls[duplicate] = claimDuplicate(s)
	return calls
}

func claimDuplicate(s storage.Store) call {
	return func(ctx context.Context, m *message) error {
		_, err := claimed(ctx, s, m, storage.Duplicate)
		return err
	}
}

// claimed claims a message, with the wanted outcome.
func claimed(ctx context.Context, s storage.Store, m *message, want storage.Outcome) (storage.Claim, error) {
	c, err := s.Claim(ctx, m.Key, storage.ClaimRequest{
		Owner: storage.NewOwner(), Fingerprint: m.Fingerprint, Lease: lease, Retention: retention,
	})
	if err == nil && c.Outcome != want {
		err = fmt.Errorf("claim %s: %s instead of %s", m.Key, c.Outcome, want)
	}
	return c, err
}

// behindWindow are the calls of a store with a window in front. The two layers
// share the window: the first trusts the window, the second has the store confirm.
func behindWindow(s storage.Store) ([phases]call, error) {
	window := memory.NewWindow(memory.WindowOptions{})
	trusting, err := memory.Layer(s, window, memory.LayerOptions{Trust: true})
	if err != nil {
		return [phases]call{}, err
	}
	confirming, err := memory.Layer(s, window, memory.LayerOptions{})
	if err != nil {
		return [phases]call{}, err
	}
	calls := ofStore(trusting)
	calls[duplicate] = claimDuplicate(confirming)
	calls[trusted] = claimDuplicate(trusting)
	calls[lookUp] = func(_ context.Context, m *message) error {
		if window.Lookup(m.Message) != memory.Exact {
			return fmt.Errorf("the window does not know %s", m.Key)
		}
		return nil
	}
	return calls, nil
}
