package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/circuit"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// A Processor failing open asks the store so: once, and not for long. After
// failures about silentKeys keys it is not asked any more, except in the
// background.
const (
	silentKeys = 3
	// openPatience bounds a call while the store is thought to be there: an
	// outage is found out within a third of a second.
	openPatience = 250 * time.Millisecond
	// silentPatience bounds the settlement of everything claimed before.
	silentPatience = 40 * time.Millisecond
)

// silentWaits space the looks for a silent store.
var silentWaits = backoff.Range{First: time.Second, Longest: 10 * time.Second}

// errSilent is why a handler runs unclaimed without a call of the store.
var errSilent = errors.New("the store has not answered lately")

// outage is what a Processor failing open knows of its store.
type outage struct {
	mu      sync.Mutex
	breaker *circuit.Breaker[int, storage.Key]
	calls   int
}

func newOutage() *outage {
	return &outage{breaker: circuit.New[int, storage.Key](silentKeys, silentWaits.Wait)}
}

// claiming tells whether a claim may be asked for, as the call with the number.
// If not, a number tells the caller to look for the store.
func (o *outage) claiming() (ask bool, call int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ask = o.breaker.State() == circuit.Closed
	if ask || o.breaker.Allows(time.Now()) {
		call = o.begin()
	}
	return ask, call
}

// settling returns how long to ask for a settlement, and the call's number, 0
// if the outcome tells nothing.
func (o *outage) settling() (patience time.Duration, call int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.breaker.State() == circuit.Closed {
		return openPatience, o.begin()
	}
	return silentPatience, 0
}

// begin returns the number of a new call. The caller has the lock.
func (o *outage) begin() int {
	o.calls++
	o.breaker.Starts(o.calls)
	return o.calls
}

// end takes the outcome of a call. A call cancelled by the caller tells
// nothing.
func (o *outage) end(ctx context.Context, call int, key storage.Key, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case storage.Answered(err):
		o.breaker.Passes(call)
	case ctx.Err() != nil:
		o.breaker.Cancelled(call)
	default:
		o.breaker.Fails(call, key, time.Now())
	}
}

// claimOnce asks for the claim with a short call, or not at all.
func (p *Processor) claimOnce(ctx context.Context, m Message, req storage.ClaimRequest) (claim storage.Claim, err error) {
	ask, n := p.outage.claiming()
	if !ask {
		if n != 0 {
			p.lookForStore(ctx, n, m.Key.Scope)
		}
		return storage.Claim{}, errSilent
	}
	err = p.short(ctx, openPatience, func(ctx context.Context) (err error) {
		claim, err = p.store.Claim(ctx, m.Key, req)
		return err
	})
	p.outage.end(ctx, n, m.Key, err)
	return claim, err
}

// settleOnce settles the key with a short call.
func (p *Processor) settleOnce(ctx context.Context, key storage.Key, call func(ctx context.Context) error) error {
	patience, n := p.outage.settling()
	err := p.short(ctx, patience, call)
	if n != 0 {
		p.outage.end(ctx, n, key, err)
	}
	return err
}

func (p *Processor) short(ctx context.Context, patience time.Duration, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, min(patience, p.options.Timeout))
	defer cancel()
	return call(ctx)
}

// lookForStore finds out whether the store answers again, on a separate
// goroutine ending within Timeout, or with Close: no message waits. The probe
// claims a key, forgotten at once. A read would not tell: a full store, or a
// read-only store, still answers reads.
func (p *Processor) lookForStore(ctx context.Context, call int, scope string) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(p.over, cancel)
	// Several keys: a single key may be on a failed shard.
	key := storage.Key{Scope: scope, ID: fmt.Sprintf("cdc-outbox-probe-%d", call%16)}
	req := storage.ClaimRequest{Owner: storage.NewOwner(), Lease: storage.MinLease, Retention: storage.MinLease}
	p.background(func() {
		defer cancel()
		defer unlink()
		err := p.short(ctx, p.options.Timeout, func(ctx context.Context) error {
			_, err := p.options.Store.Claim(ctx, key, req)
			return err
		})
		p.outage.end(ctx, call, key, err)
	})
}

// unsettledOpen returns the result of an attempt without a settlement. The
// handler's outcome stands, though unknown to others.
func (a *attempt) unsettledOpen(err, reason error, value []byte) (Result, error) {
	a.options.Observer.failOpen(a.message, err)
	switch {
	case a.ran && reason == nil:
		r := a.result(Handled, 0)
		r.Value = value
		return r, nil
	case a.pending != nil && a.pending.Buried:
		r := a.result(DeadLettered, 0)
		r.Reason = reason.Error()
		return r, nil
	}
	if !a.pending.givenUp() { // the claim may still be ours: the next Run asks
		a.pending = a.pending.claimed(a.message.Key, a.claim.Lease.Owner, err)
	}
	return a.result(Retry, a.options.retryAfter(1)), errors.Join(err, reason)
}

// runUnclaimed is FailOpen.
func (p *Processor) runUnclaimed(ctx context.Context, m Message, pending *Pending, handler Handler, cause error) (Result, error) {
	p.options.Observer.failOpen(m, cause)
	if pending == nil {
		pending = &Pending{Key: m.Key}
	}
	if pending.givenUp() {
		return p.giveUpUnclaimed(ctx, m, *pending)
	}
	value, err := call(ctx, handler)
	switch {
	case err == nil:
		return Result{Disposition: Handled, Value: value}, nil
	case ctx.Err() != nil:
		return Result{Disposition: Retry, Pending: pending}, err
	case isTerminal(err) && p.options.DeadLetter != nil:
		givenUp := *pending
		givenUp.Attempt, givenUp.Reason = 1, err
		return p.giveUpUnclaimed(ctx, m, givenUp)
	default:
		return Result{Disposition: Retry, Wait: p.options.retryAfter(1), Pending: pending}, err
	}
}

func (p *Processor) giveUpUnclaimed(ctx context.Context, m Message, pending Pending) (Result, error) {
	r, err := p.refuse(ctx, DeadLetter{Message: m, Attempts: pending.Attempt, Reason: pending.Reason})
	if err != nil {
		r.Pending = pending.unburied()
		r.Wait = p.options.retryAfter(r.Pending.Tries)
	}
	return r, err
}
