package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/ahead"
	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/usercode"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// early is what is known of a message's claim before its Run asks for it. After
// an early request, beside the completion of the message before, the claim may
// be live, or the answer to a duplicate. Otherwise, a claim may have been
// granted all the same: the owner's next request gets the same claim.
type early struct {
	*Processor
	message Message
	owner   string
	asked   time.Time
	claim   storage.Claim
	live    bool
	work    storage.Work // a Transactor's; nil unless the claim is live
	leave   func()       // the place at the gate of a live claim
	turn    *ahead.Turn  // the message's, while running; nil for none
}

var _ ahead.Claim = (*early)(nil)

// Live implements ahead.Claim.
func (e *early) Live() bool { return e.live }

// answered reports whether the claim need not be asked for.
func (e *early) answered() bool { return e.live || e.claim.Outcome == storage.Duplicate }

// Drop implements ahead.Claim. A claim that is not given back remains this
// process's, under the same owner.
func (e *early) Drop(ctx context.Context) {
	if !e.Live() {
		return
	}
	defer e.leave()
	a := &attempt{Processor: e.Processor, ctx: ctx, message: e.message, claim: e.claim, work: e.work}
	e.live, e.work = false, nil
	a.release()
	_ = a.settleFailure(nil, storage.Failure{Unrun: true, Reason: e.claim.Reason, Retention: e.options.Retention})
}

// keptFor is for how long a Transactor's claim is of use: the server may end an
// idle transaction. Others are of use while the lease lasts.
const keptFor = time.Second

// aged reports whether it is too late for the claim's message to begin.
func (e *early) aged() bool {
	age := time.Since(e.asked)
	return age > e.options.Lease-e.options.Margin || e.transactor != nil && age > keptFor
}

// early returns the context's knowledge of the message's claim. A live claim is
// the Run's from then on; a useless claim is dropped.
func (p *Processor) early(ctx context.Context, m Message, pending *Pending) *early {
	t := ahead.Take(ctx, m.Key)
	if t != nil && t.Claimed != nil {
		e, ok := t.Claimed.(*early)
		if ok && e.Processor == p && e.message.Key == m.Key && pending == nil {
			t.Claimed, e.turn = nil, t
			if ctx.Err() != nil || e.message.Fingerprint != m.Fingerprint || e.aged() {
				e.Drop(ctx)
				e.claim = storage.Claim{}
			}
			return e
		}
		t.Claimed.Drop(ctx) // another Processor's, in the way
	}
	return &early{owner: pending.claiming(), turn: t}
}

// next returns the claim to ask for with the completion of the attempt, or nil.
// The claim has a place at the gate, unless somebody wants to be alone.
func (a *attempt) next() *early {
	if a.turn == nil || a.outage != nil || a.options.Shadow {
		return nil
	}
	if _, ok := a.work.(ahead.Work); !ok && a.transactor != nil {
		return nil
	}
	key, fingerprint, ok := a.turn.Next(a.transactor == nil)
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

// commitAndClaim is Work.Commit; with next (or nil) Work.CommitAndClaim.
func (a *attempt) commitAndClaim(ctx context.Context, value []byte, next *early) error {
	if next == nil {
		return a.work.Commit(ctx, value, a.options.Retention)
	}
	claim, err := a.work.(ahead.Work).CommitAndClaim(ctx, value, a.options.Retention, next.message.Key, a.request(next.message, next.owner))
	if err == nil && claim.Outcome == storage.Claimed {
		next.claim, next.live, next.work, a.work = claim, true, a.work, nil
	}
	return err
}

// completeTogether is the store's Complete, and claims next (or nil) in the
// same call. ok is false, and nothing was asked, without a next, or if the
// store cannot.
func (a *attempt) completeTogether(h *hold, value []byte, next *early) (ok bool, err error) {
	store, able := a.options.Store.(ahead.Store)
	if next == nil || !able {
		return false, nil
	}
	asked, apart := false, false
	defer func() {
		if !apart {
			a.leaveNext(next)
		}
	}()
	err = a.settle(h, "complete key", func(ctx context.Context) error {
		if asked {
			return a.completion(value)(ctx)
		}
		asked = true
		begun := time.Now()
		claim, claimErr, err := store.CompleteAndClaim(ctx, store, a.claim.Lease, value, a.options.Retention, next.message.Key, a.request(next.message, next.owner))
		if apart = errors.Is(err, ahead.ErrApart); apart {
			return nil
		}
		a.options.Observer.storeCall(storage.OpClaim, begun, claimErr)
		a.options.Observer.storeCall(storage.OpComplete, begun, err)
		if claimErr == nil {
			next.claim, next.live = claim, claim.Outcome == storage.Claimed
		}
		return err
	})
	return !apart, err
}

// late is the patience with the claim of the next after the completion of a
// message. Then the claim is given up, and left to the next message's Run.
const late = 50 * time.Millisecond

// claimMeanwhile asks for the claim of next (or nil) while the caller completes
// the attempt: the store sees both at the same moment, and may answer both in a
// single round trip. wait waits for the answer until late after being called.
// The goroutine ends then or, if the store does not heed the context, with the
// answer; Close joins it.
func (a *attempt) claimMeanwhile(next *early) (wait func()) {
	if next == nil {
		return func() {}
	}
	type answer struct {
		claim storage.Claim
		took  time.Duration
		err   error
	}
	answers := make(chan answer, 1)
	asking, cancel := context.WithCancel(context.WithoutCancel(a.ctx))
	a.background(func() {
		var claim storage.Claim
		err := usercode.Call(func() error {
			return a.try(asking, func(ctx context.Context) (err error) {
				claim, err = a.options.Store.Claim(ctx, next.message.Key, a.request(next.message, next.owner))
				return err
			})
		})
		answers <- answer{claim, time.Since(next.asked), err}
	})
	return func() {
		defer cancel() // the message's own Run asks from here on
		defer a.leaveNext(next)
		timer := time.NewTimer(late)
		defer timer.Stop()
		select {
		case got := <-answers:
			if a.options.Observer.StoreCall != nil {
				a.options.Observer.StoreCall(storage.OpClaim, got.took, got.err)
			}
			if got.err == nil {
				next.claim, next.live = got.claim, got.claim.Outcome == storage.Claimed
			}
		case <-timer.C:
		}
	}
}

// leaveNext leaves the outcome of next to the message's turn.
func (a *attempt) leaveNext(next *early) {
	a.turn.Following = next
	if !next.Live() {
		next.leave()
	}
}
