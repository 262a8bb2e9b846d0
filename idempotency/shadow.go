package idempotency

import (
	"context"
	"errors"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// Shadow tells whether the Processor only looks on (Options.Shadow).
func (p *Processor) Shadow() bool { return p.options.Shadow }

// shadow has the message decided upon, tells the observer, and lets the handler
// run whatever was decided. The handler runs in the caller's context: no lease
// ends it, and it waits for nobody.
func (p *Processor) shadow(ctx context.Context, m Message, handler Handler) (Result, error) {
	var (
		ran     bool
		value   []byte
		failure error
	)
	observed := func(context.Context) ([]byte, error) {
		ran = true
		value, failure = call(ctx, handler)
		return value, failure
	}
	would, err := p.run(ctx, m, nil, observed, true, nil)
	if errors.Is(err, storage.ErrMismatch) || errors.Is(err, storage.ErrBadKey) {
		would.Disposition = DeadLettered
	}
	would.Pending = nil
	if p.options.Observer.Shadow != nil {
		p.options.Observer.Shadow(m, would, err)
	}
	if !ran {
		value, failure = call(ctx, handler)
	}
	if failure != nil {
		return Result{Disposition: Retry, Wait: p.options.retryAfter(1)}, failure
	}
	return Result{Disposition: Handled, Attempt: max(would.Attempt, 1), Value: value}, nil
}
