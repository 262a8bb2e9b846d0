package idempotency

import (
	"context"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// Pending is the unfinished part of a Run: a claim without an answer, or behind
// another claim, perhaps itself; a handler's success without the store's
// confirmation, or a given-up message without a dead letter. Pending is
// Result.Pending. The message's next Run goes on from there if the Message has
// it: it asks for the same claim, not for one more, and does not call a handler
// again that has ended. A Pending lives as long as the caller keeps it. Another
// process that gets the message begins anew.
//
// A Pending is not changed once returned, and is for one Run at a time: two
// asking for the same claim would both be granted it.
type Pending struct {
	// Key is the message's.
	Key storage.Key
	// Owner asked for a claim, perhaps granted; empty if none is in doubt.
	Owner string
	// Attempt is the number of the handler's deciding run; 0 if none did. The
	// fields below describe the run.
	Attempt int
	// Lease is to be settled, if the handler succeeded or the message is buried.
	Lease storage.Lease
	// Value is the handler's result after a success.
	Value []byte
	// Reason says why the message is given up; nil if the handler succeeded.
	Reason error
	// Buried: the dead letter is durable.
	Buried bool
	// Tries counts how often the dead letter could not be written.
	Tries int
}

// of returns the pending state of the message with the key, or nil.
func (p *Pending) of(key Key) *Pending {
	if p == nil || p.Key != key {
		return nil
	}
	return p
}

// givenUp tells whether the handler, or the number of attempts, gave the
// message up. givenUp may be called on nil.
func (p *Pending) givenUp() bool { return p != nil && p.Reason != nil }

// claiming returns the owner to claim for: the owner of the claim in doubt, or
// a new owner. It may be called on nil.
func (p *Pending) claiming() string {
	if p == nil || p.Owner == "" {
		return storage.NewOwner()
	}
	return p.Owner
}

// claimed returns the pending state, or nil, after the owner's claim with the
// error, if any. claimed may be called on nil.
func (p *Pending) claimed(key storage.Key, owner string, err error) *Pending {
	if storage.Answered(err) {
		owner = ""
	}
	switch {
	case p == nil && owner == "", p != nil && owner == p.Owner:
		return p
	case p == nil:
		return &Pending{Key: key, Owner: owner}
	case p.Attempt == 0 && owner == "":
		return nil
	}
	next := *p
	next.Owner = owner
	return &next
}

// unburied is p after another failed try at the dead letter.
func (p Pending) unburied() *Pending {
	p.Tries++
	return &p
}

// buried is p after the dead letter was written. lease is still to be settled.
func (p Pending) buried(lease storage.Lease) *Pending {
	p.Buried, p.Lease = true, lease
	return &p
}

// toSettle reports whether only the settlement of the lease is left to do.
func (p *Pending) toSettle() bool {
	return p != nil && p.Attempt > 0 && (p.Reason == nil || p.Buried)
}

// settlePending settles the key after an earlier Run's failure. The lease may
// be over: the key can be settled as long as nobody else has claimed it.
func (p *Processor) settlePending(ctx context.Context, m Message, before *Pending) (Result, error) {
	a := &attempt{
		Processor: p, ctx: ctx, message: m, claim: storage.Claim{Lease: before.Lease},
		ran: true, failure: before.Reason, pending: before,
	}
	if before.Buried {
		return a.settleBuried(nil, before.Reason)
	}
	return a.complete(nil, before.Value)
}
