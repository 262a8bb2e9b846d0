package idempotency

import "context"

// Verdict is what a handler came to in a Run that could not record it: that it
// succeeded, but the store did not answer; or that the message is given up, but
// its dead letter could not be kept. It is Result.Verdict, and it stands: with
// it in the context of the message's next Run, only the recording is tried
// again, not the handler. It lives as long as the caller keeps it: another
// process that gets the message runs the handler.
//
// A Verdict is not changed once it is returned.
type Verdict struct {
	// Lease is that under which the handler ran.
	Lease Lease
	// Attempt is the number of the handler's run.
	Attempt int
	// Value is the handler's result, if it succeeded.
	Value []byte
	// Reason says why the message is given up; nil if the handler succeeded.
	Reason error
	// Buried: the dead letter is kept, and the key still to be settled.
	Buried bool
	// Tries counts how often the dead letter could not be kept.
	Tries int
}

type verdictKey struct{}

// ContextWithVerdict returns a context for a Run that has the verdict of an
// earlier one recorded. A nil verdict changes nothing.
func ContextWithVerdict(ctx context.Context, v *Verdict) context.Context {
	if v == nil {
		return ctx
	}
	return context.WithValue(ctx, verdictKey{}, v)
}

// VerdictOn returns the verdict on the message of that key, or nil. It is for
// Runners: the contexts of hooks may hold the verdict on another message.
func VerdictOn(ctx context.Context, key Key) *Verdict {
	if v, _ := ctx.Value(verdictKey{}).(*Verdict); v != nil && v.Lease.Key == key {
		return v
	}
	return nil
}

// unburied is the verdict after one more dead letter that could not be kept.
func (v Verdict) unburied() *Verdict {
	v.Tries++
	return &v
}

// buried is the verdict after its dead letter was kept, under the lease that
// is still to be settled.
func (v Verdict) buried(lease Lease) *Verdict {
	v.Buried, v.Lease = true, lease
	return &v
}

// settled tells whether nothing but the settlement of the lease is left to do.
func (v *Verdict) settled() bool { return v.Reason == nil || v.Buried }

// record settles the key as an earlier Run could not. The lease may be over: as
// long as nobody else has claimed the key, it can be settled.
func (p *Processor) record(ctx context.Context, m Message, v *Verdict) (Result, error) {
	a := &attempt{Processor: p, ctx: ctx, message: m, claim: Claim{Lease: v.Lease}, ran: true, failure: v.Reason, verdict: v}
	var r Result
	var err error
	if v.Buried {
		r, err = a.settleBuried(nil, v.Reason)
	} else {
		r, err = a.complete(nil, v.Value)
	}
	if r.Disposition == Unavailable && ctx.Err() == nil && p.options.OnUnavailable == FailOpen {
		p.options.Observer.failOpen(m, err)
		return v.result(), nil
	}
	return r, err
}

// result is that of a message that is finished.
func (v *Verdict) result() Result {
	if v.Reason != nil {
		return Result{Disposition: DeadLettered, Reason: v.Reason.Error()}
	}
	return Result{Disposition: Handled, Value: v.Value}
}
