package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/solo"
	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/usercode"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// Processor is the Runner around a Store. Make a Processor with New, and Close it
// after the last Run. It is safe for concurrent use.
//
// Around a Transactor, what the handler writes in the transaction is committed
// together with the key's completion, or not at all: success is never Pending,
// and Lost leaves nothing behind there. If a commit is not answered, Run asks
// for its outcome; if that cannot be told, the result is Unavailable, and the
// next Run finds out.
//
// A panic of the handler is recovered, and is an error like any other;
// errors.As, to an interface with the method Stack() []byte, gives its stack.
//
// What cannot be recovered takes the process down, and with it the other
// messages in work. All of their attempts count as vanished, and such a message
// is run alone from then on: it waits until no other Run of the same Processor
// holds a claim, and others wait for it, each up to Lease. So only the message
// that is the reason vanishes again, until given up after MaxVanished.
// Consumers of a single process should share a Processor for that.
type Processor struct {
	options Options
	store   storage.Store
	gate    solo.Gate
	outage  *outage // nil unless it fails open
	*lifetime
	// transactor is the store, if it is one.
	transactor storage.Transactor
}

var _ Runner = (*Processor)(nil)

// New returns a Processor, or an error naming the faulty option.
func New(o Options) (*Processor, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("configure processor: %w", err)
	}
	p := &Processor{options: o, store: observe(o.Store, o.Observer), lifetime: newLifetime()}
	p.transactor, _ = o.Store.(storage.Transactor)
	if o.FailOpen {
		p.outage = newOutage()
	}
	return p, nil
}

// Retention returns how long settled keys are kept (Options.Retention).
func (p *Processor) Retention() time.Duration { return p.options.Retention }

// Check implements storage.Checker for the store. A store with nothing to look
// at has no problems.
func (p *Processor) Check(ctx context.Context) ([]storage.Problem, error) {
	if c, ok := p.options.Store.(storage.Checker); ok {
		return c.Check(ctx)
	}
	return nil, nil
}

// Maintain implements Maintainer for the store.
func (p *Processor) Maintain(ctx context.Context, report func(error)) {
	if m, ok := p.options.Store.(storage.Maintainer); ok {
		m.Maintain(ctx, report)
	}
}

// Run implements Runner. The outcomes of a message:
//
//	claimed before and completed          → Skipped
//	claimed before and given up           → DeadLettered
//	somebody else's, or not due           → Elsewhere, NotDue
//	failed MaxAttempts times, or vanished
//	MaxVanished times                     → DeadLettered, without a run
//	another payload, bad key              → DeadLettered, the key is left alone
//	the handler returns nil               → Handled
//	it returns an error                   → Retry
//	the same, and it is Terminal or the
//	last attempt                          → DeadLettered
//	the same, and it is Transient         → Retry, always
//	the dead letter cannot be kept        → Retry; the handler's verdict is Pending
//	it did so after HandlerTimeout        → as any error
//	its context ended before it did       → Retry at once, the attempt is excused
//	the lease was lost                    → Lost, after Compensate; the result is discarded
//	a fingerprint that cannot be stored   → Retry: a mistake in the program
//	a Transactor has nothing free for it
//	within Timeout                        → Retry
//	a claim or settlement is not answered → Unavailable; it is Pending, and whether it
//	                                        happened the next Run finds out
//	the Processor is closed               → Unavailable, before any call
//
// When ctx ends, the handler's context does, and Run returns after the handler
// did and Timeout at most.
func (p *Processor) Run(ctx context.Context, m Message, handler Handler) (Result, error) {
	if err := p.begin(); err != nil {
		return p.refused(m, err)
	}
	defer p.finish()
	begun, pending := time.Now(), m.Pending.of(m.Key)
	m.Pending = nil
	r, err := p.decide(ctx, m, pending, handler)
	if err != nil {
		err = fmt.Errorf("message %q: %w", m.Key, err)
	}
	p.options.Observer.run(m, r, err, time.Since(begun))
	return r, err
}

func (p *Processor) decide(ctx context.Context, m Message, pending *Pending, handler Handler) (Result, error) {
	if p.options.Shadow {
		return p.shadow(ctx, m, handler)
	}
	r, err := p.together(ctx, m, pending, handler)
	if errors.Is(err, errAlone) {
		r, err = p.alone(ctx, m, r.Pending, handler)
	}
	return r, err
}

// errAlone is the error of a Run that is to be made alone.
var errAlone = errors.New("the last attempt vanished: the message is run alone")

type insideKey struct{}

// together runs the message beside others.
func (p *Processor) together(ctx context.Context, m Message, pending *Pending, handler Handler) (Result, error) {
	if ctx.Value(insideKey{}) == p { // within a handler, which would wait for itself
		return p.run(ctx, m, pending, handler, true, nil)
	}
	e := p.early(ctx, m, pending)
	leave := e.leave
	if !e.Live() {
		var err error
		if leave, err = p.gate.Enter(ctx); err != nil {
			return Result{Disposition: Retry, Pending: pending}, err
		}
	}
	defer leave()
	return p.run(context.WithValue(ctx, insideKey{}, p), m, pending, handler, false, e)
}

// alone runs a message whose last attempt vanished. It has no claim while it
// waits: if another brings the process down meanwhile, it has no part in that.
func (p *Processor) alone(ctx context.Context, m Message, pending *Pending, handler Handler) (Result, error) {
	leave, err := p.gate.EnterAlone(ctx, p.options.Lease)
	if err != nil {
		return Result{Disposition: Retry, Pending: pending}, err
	}
	defer leave()
	return p.run(context.WithValue(ctx, insideKey{}, p), m, pending, handler, true, nil)
}

// run runs the message. e is nil if nothing is known of the claim.
func (p *Processor) run(ctx context.Context, m Message, pending *Pending, handler Handler, alone bool, e *early) (Result, error) {
	if pending.toSettle() {
		return p.settlePending(ctx, m, pending)
	}
	if e == nil {
		e = &early{owner: pending.claiming()}
	}
	var err error
	asked, owner, claim, work := e.asked, e.owner, e.claim, e.work
	if !e.answered() {
		asked = time.Now()
		claim, work, err = p.claim(ctx, m, owner)
	}
	pending = pending.claimed(m.Key, owner, err)
	switch {
	case errors.Is(err, storage.ErrMismatch), errors.Is(err, storage.ErrBadKey):
		return p.refuse(ctx, DeadLetter{Message: m, Reason: err})
	case err != nil && ctx.Err() != nil:
		return Result{Disposition: Unavailable, Pending: pending}, err
	case errors.Is(err, storage.ErrBusy): // by handlers, so the store is there
		return Result{Disposition: Retry, Wait: p.options.retryAfter(1), Pending: pending}, err
	case !storage.Answered(err) && p.options.FailOpen:
		return p.runUnclaimed(ctx, m, pending, handler, err)
	case !storage.Answered(err):
		return Result{Disposition: Unavailable, Wait: p.options.retryAfter(1), Pending: pending}, err
	case err != nil: // a mistake in the program, about this message
		return Result{Disposition: Retry, Wait: p.options.retryAfter(1), Pending: pending}, err
	}
	p.options.Observer.claim(m, claim)
	r := Result{Layer: claim.Layer, Wait: claim.Wait}
	switch claim.Outcome {
	case storage.Claimed:
		a := &attempt{Processor: p, ctx: ctx, message: m, claim: claim, work: work, asked: asked, pending: pending, turn: e.turn}
		defer a.release()
		if claim.Vanished > 0 && !alone && !pending.givenUp() && p.options.exhausted(claim) == nil {
			return a.standAside()
		}
		return a.run(handler)
	case storage.Duplicate:
		r.Disposition, r.Value = Skipped, claim.Result
		return r, nil
	case storage.GivenUp:
		r.Disposition, r.Reason = DeadLettered, claim.Reason
		return r, nil
	case storage.InProgress: // perhaps this very claim, if made before and not answered
		r.Disposition, r.Pending = Elsewhere, pending.claimed(m.Key, owner, errInProgress)
		return r, errInProgress
	case storage.NotDue:
		r.Disposition, r.Pending = NotDue, pending
		return r, errNotDue
	default:
		return Result{Disposition: Unavailable, Wait: p.options.retryAfter(1), Pending: pending},
			fmt.Errorf("store answered a claim with the outcome %d", claim.Outcome)
	}
}

// Refuse gives up a message that cannot be run, such as one without an id, by
// Options.DeadLetter, and leaves the key alone. The Result is Done once the
// message is durable.
func (p *Processor) Refuse(ctx context.Context, m Message, reason error) (Result, error) {
	if err := p.begin(); err != nil {
		return p.refused(m, err)
	}
	defer p.finish()
	return p.refuse(ctx, DeadLetter{Message: m, Reason: reason})
}

// refuse gives up a message without a claim: no attempt can be made of it, and
// the key, if it has a record, is another message's; or the store is down.
func (p *Processor) refuse(ctx context.Context, d DeadLetter) (Result, error) {
	if err := p.deadLetter(ctx, d); err != nil {
		return Result{Disposition: Retry, Wait: p.options.retryAfter(1)}, errors.Join(d.Reason, err)
	}
	return Result{Disposition: DeadLettered, Reason: d.Reason.Error()}, nil
}

// errNoDeadLetter says why a message cannot be given up.
var errNoDeadLetter = errors.New("no dead letter is configured")

func (p *Processor) deadLetter(ctx context.Context, d DeadLetter) error {
	err := errNoDeadLetter
	if p.options.DeadLetter != nil {
		err = usercode.Call(func() error { return p.options.DeadLetter(ctx, d) })
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil: // it was cut off: that says nothing of where dead letters go
		return fmt.Errorf("keep dead letter: %w", err)
	}
	p.options.Observer.deadLetterFailed(d.Message, err)
	return fmt.Errorf("%w: %w", storage.ErrDeadLetter, err)
}
