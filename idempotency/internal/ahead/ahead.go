// Package ahead lets a message be claimed at the moment of the completion before,
// so each message takes a single round trip to the store, not two.
//
// A caller handling messages in turn gives each Run a Turn, by the context. A
// Runner claims the next message while completing a message, and leaves the claim
// in the Turn, from there to the next message's Turn. So a claim is never made
// before the handler of the message before has ended, and a granted claim is
// followed by its message's Run, or dropped. A claim not answered in time is left
// to the message's Run, which asks for the same owner.
package ahead

import (
	"context"
	"errors"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// Turn is a single message's turn. A single goroutine at a time uses it.
type Turn struct {
	// Key is the message's.
	Key storage.Key
	// Next returns the next message, if free to be claimed, and is called when the
	// handler has succeeded. With own, only the next of the same order counts: this
	// message has to wait in any case, if the completion hangs.
	Next func(own bool) (key storage.Key, fingerprint storage.Fingerprint, ok bool)
	// Claimed was left by the turn before, or is nil. The Run takes the claim.
	Claimed Claim
	// Following is the next turn's, or nil.
	Following Claim

	taken bool
}

// Claim is a claim asked for ahead.
type Claim interface {
	// Live tells whether the claim was granted, and holds its message's resources:
	// the message must be run at once, or the claim dropped.
	Live() bool
	// Drop gives a live claim back, as if never asked for. The knowledge of the
	// claim remains useful to the message's Run.
	Drop(ctx context.Context)
}

// Work is a storage.Work able to claim the next message's key.
type Work interface {
	storage.Work

	// CommitAndClaim is Commit and, on success, in the same round trip the next
	// message's Claim and Begin; the claim counts if the commit does. If the
	// claim's outcome is Claimed, the Work is the next message's from then on, as
	// after Begin. Otherwise the claim was not granted or not asked for, or the
	// answer is not known. The error is Commit's or, if nothing was committed
	// because of the claim, wraps ErrClaim.
	CommitAndClaim(ctx context.Context, result []byte, retention time.Duration, key storage.Key, req storage.ClaimRequest) (storage.Claim, error)
}

// Store is a storage.Store able to claim the next message's key in the call
// completing a message.
type Store interface {
	storage.Store

	// CompleteAndClaim is Complete and, in the same round trip and whatever the
	// outcome, Claim. Each has a separate error. With ErrApart nothing was asked:
	// the two have to be asked for apart. So they are if self, the caller's store,
	// is a store around the receiver.
	CompleteAndClaim(ctx context.Context, self storage.Store, lease storage.Lease, result []byte, retention time.Duration, key storage.Key, req storage.ClaimRequest) (claim storage.Claim, claimErr, err error)
}

// ErrApart is the error of a CompleteAndClaim not made.
var ErrApart = errors.New("the completion and the claim have to be asked for apart")

// ErrClaim is wrapped by the error of a commit that failed, or may have failed,
// because of the next message's claim, and so through no fault of its own
// message.
var ErrClaim = errors.New("the next message's claim, which would have been committed with it, failed")

type turnKey struct{}

// WithTurn returns a context for the Run of the turn.
func WithTurn(ctx context.Context, t *Turn) context.Context {
	return context.WithValue(ctx, turnKey{}, t)
}

// Take returns the turn of the message's Run with the context, or nil. The turn
// is the first Run's: a Run within the handler has none.
func Take(ctx context.Context, key storage.Key) *Turn {
	t, _ := ctx.Value(turnKey{}).(*Turn)
	if t == nil || t.taken || t.Key != key {
		return nil
	}
	t.taken = true
	return t
}
