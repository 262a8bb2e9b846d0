package idempotency

import (
	"context"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/ahead"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// early is what is known of a message's claim before its Run asks for one. If it
// was asked for in the round trip that completed the message before, it may be
// live. If it is not, it may have been granted all the same: who asks again for
// the owner gets the same claim.
type early struct {
	*Processor
	message Message
	owner   string
	asked   time.Time
	claim   storage.Claim
	work    storage.Work // nil unless the claim is live
	leave   func()       // the place at the gate of a live claim
	turn    *ahead.Turn  // the message's, while it is run; nil if it has none
}

var _ ahead.Claim = (*early)(nil)

// Live implements ahead.Claim.
func (e *early) Live() bool { return e.work != nil }

// Drop implements ahead.Claim. If the claim cannot be given back, it is this
// process's still, by its owner.
func (e *early) Drop(ctx context.Context) {
	if !e.Live() {
		return
	}
	defer e.leave()
	a := &attempt{Processor: e.Processor, ctx: ctx, message: e.message, claim: e.claim, work: e.work}
	e.work = nil
	a.release()
	_ = a.settleFailure(nil, storage.Failure{Unrun: true, Reason: e.claim.Reason, Retention: e.options.Retention})
}

// keptFor is for how long a live claim is of use: the server may end a transaction
// that is idle.
const keptFor = time.Second

// early returns what the context knows of the message's claim. A live claim is the
// Run's from then on; one that is of no use any more is dropped.
func (p *Processor) early(ctx context.Context, m Message, pending *Pending) *early {
	t := ahead.Take(ctx, m.Key)
	if t != nil && t.Claimed != nil {
		e, ok := t.Claimed.(*early)
		if ok && e.Processor == p && e.message.Key == m.Key && pending == nil {
			t.Claimed, e.turn = nil, t
			if ctx.Err() != nil || e.message.Fingerprint != m.Fingerprint || time.Since(e.asked) > min(keptFor, p.options.Lease-p.options.Margin) {
				e.Drop(ctx)
			}
			return e
		}
		t.Claimed.Drop(ctx) // another Processor's: it would be in the way
	}
	return &early{owner: pending.claiming(), turn: t}
}

// next returns the claim that may be asked for with the completion of this
// attempt, or nil. It has a place at the gate, unless somebody wants to be alone.
func (a *attempt) next() *early {
	if a.turn == nil {
		return nil
	}
	if _, ok := a.work.(ahead.Work); !ok {
		return nil
	}
	key, fingerprint, ok := a.turn.Next()
	if !ok || key == a.message.Key || key.Validate() != nil {
		return nil
	}
	leave, ok := a.gate.TryEnter()
	if !ok {
		return nil
	}
	return &early{
		Processor: a.Processor, message: Message{Key: key, Fingerprint: fingerprint},
		owner: storage.NewOwner(), asked: time.Now(), leave: leave,
	}
}

// commitAndClaim is Work.Commit; with next, which may be nil, Work.CommitAndClaim.
func (a *attempt) commitAndClaim(ctx context.Context, value []byte, next *early) error {
	if next == nil {
		return a.work.Commit(ctx, value, a.options.Retention)
	}
	claim, err := a.work.(ahead.Work).CommitAndClaim(ctx, value, a.options.Retention, next.message.Key, a.request(next.message, next.owner))
	if err == nil && claim.Outcome == storage.Claimed {
		next.claim, next.work, a.work = claim, a.work, nil
	}
	return err
}

// leaveNext leaves what became of next, which may be nil, to the message's turn.
func (a *attempt) leaveNext(next *early, begun time.Time) {
	if next == nil {
		return
	}
	a.turn.Following = next
	if next.Live() {
		a.options.Observer.storeCall(storage.OpClaim, begun, nil)
	} else {
		next.leave()
	}
}
