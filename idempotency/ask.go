package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
)

// A call whose answer is unknown is made again, with the same arguments: the
// second answer tells whether the first was carried out. A claim is repeated
// once, and then by the next Run (Pending). A settlement is repeated for as
// long as Timeout lasts.
const claimTries = 2

// tries is how many calls that hang fit into Timeout.
const tries = 3

// between are the waits before a call is repeated.
var between = backoff.Range{First: 20 * time.Millisecond, Longest: time.Second}

func (p *Processor) claim(ctx context.Context, m Message, owner string) (claim Claim, err error) {
	req := ClaimRequest{
		Owner: owner, Fingerprint: m.Fingerprint, Lease: p.options.Lease, Retention: p.options.Retention,
	}
	if p.outage != nil {
		claim, err = p.claimOnce(ctx, m, req)
	} else {
		err = p.ask(ctx, claimTries, func(ctx context.Context) (err error) {
			claim, err = p.store.Claim(ctx, m.Key, req)
			return err
		})
	}
	if err != nil {
		return Claim{}, fmt.Errorf("claim key: %w", err)
	}
	return claim, nil
}

// ask repeats a call until it is answered: at most most times, if most is above
// 0, and for at most Timeout.
func (p *Processor) ask(ctx context.Context, most int, call func(ctx context.Context) error) error {
	deadline := time.Now().Add(p.options.Timeout)
	err := p.try(ctx, call)
	if Answered(err) { // as nearly always
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for n := 1; n != most; n++ {
		if backoff.Sleep(ctx, between.Wait(n)) != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if err = p.try(ctx, call); Answered(err) {
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
