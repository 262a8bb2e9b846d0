package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// A call whose answer is unknown is made again, with the same arguments: the
// second answer tells whether the first was carried out. A claim is repeated
// once, and then by the next Run (Pending). A settlement is repeated for as
// long as Timeout lasts.
const claimTries = 2

// tries is how many calls hanging fit into Timeout.
const tries = 3

// between are the waits before a call is repeated.
var between = backoff.Range{First: 20 * time.Millisecond, Longest: time.Second}

// claim asks for the key. The work is a Transactor's, if the claim is granted.
func (p *Processor) claim(ctx context.Context, m Message, owner string) (claim storage.Claim, work storage.Work, err error) {
	req := p.request(m, owner)
	switch {
	case p.transactor != nil:
		claim, work, err = p.claimWork(ctx, m.Key, req)
	case p.outage != nil:
		claim, err = p.claimOnce(ctx, m, req)
	default:
		err = p.ask(ctx, claimTries, func(ctx context.Context) (err error) {
			claim, err = p.store.Claim(ctx, m.Key, req)
			return err
		})
	}
	if err != nil {
		return storage.Claim{}, nil, fmt.Errorf("claim key: %w", err)
	}
	return claim, work, nil
}

func (p *Processor) request(m Message, owner string) storage.ClaimRequest {
	req := storage.ClaimRequest{
		Owner: owner, Fingerprint: m.Fingerprint, Lease: p.options.Lease, Retention: p.options.Retention,
	}
	if p.options.Shadow { // an attempt in a dying process is forgotten, not counted as vanished
		req.Retention = req.Lease
	}
	return req
}

// claimWork asks for the key with what the message takes already reserved: so a
// Run waiting for a connection holds no lease.
func (p *Processor) claimWork(ctx context.Context, key storage.Key, req storage.ClaimRequest) (claim storage.Claim, work storage.Work, err error) {
	if work, err = p.reserve(ctx); err != nil {
		return storage.Claim{}, nil, err
	}
	err = p.ask(ctx, claimTries, func(ctx context.Context) (err error) {
		begun := time.Now()
		claim, err = work.Claim(ctx, key, req)
		p.options.Observer.storeCall(storage.OpClaim, begun, err)
		return err
	})
	if err != nil || claim.Outcome != storage.Claimed {
		work.Release(ctx)
		work = nil
	}
	return claim, work, err
}

// reserve waits for what the message takes, for Timeout at most.
func (p *Processor) reserve(ctx context.Context) (storage.Work, error) {
	ctx, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	begun := time.Now()
	work, err := p.transactor.Reserve(ctx)
	p.options.Observer.storeCall(storage.OpReserve, begun, err)
	return work, err
}

// ask repeats a call until answered: at most most times, if most is above 0,
// and for at most Timeout.
func (p *Processor) ask(ctx context.Context, most int, call func(ctx context.Context) error) error {
	deadline := time.Now().Add(p.options.Timeout)
	err := p.try(ctx, call)
	if storage.Answered(err) { // as nearly always
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for n := 1; n != most; n++ {
		if backoff.Sleep(ctx, between.Wait(n)) != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if err = p.try(ctx, call); storage.Answered(err) {
			return err
		}
	}
	return err
}

func (p *Processor) try(ctx context.Context, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.options.Timeout/tries)
	defer cancel()
	return call(ctx)
}
