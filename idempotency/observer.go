package idempotency

import (
	"context"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// Observer is told what a Processor does. Each function is optional. They are
// called on the goroutine of Run, StoreCall also on the goroutine extending the
// lease, and concurrently for concurrent Runs; they must not block.
type Observer struct {
	// Claim: the store answered a claim.
	Claim func(m Message, c storage.Claim)
	// Run: a Run ends with the result and error after elapsed.
	Run func(m Message, r Result, err error, elapsed time.Duration)
	// LeaseLost: the lease was lost while, or after, the handler ran. Called
	// before the compensation.
	LeaseLost func(l Loss)
	// ResultDropped: the store cannot hold a result of so many bytes; the key
	// is completed without.
	ResultDropped func(m Message, size int)
	// HandlerStuck: a handler still runs though the context has been over for a
	// while (Options.Margin), or, with false, has returned after all. Called on
	// any goroutine.
	HandlerStuck func(m Message, stuck bool)
	// DeadLetterFailed: the message's dead letter could not be kept, because of
	// err. The message and all behind it wait until the dead letter is durable.
	DeadLetterFailed func(m Message, err error)
	// FailOpen: the handler is about to run unclaimed, because of err.
	FailOpen func(m Message, err error)
	// Shadow: the result and error the message would have had without
	// Options.Shadow.
	Shadow func(m Message, would Result, err error)
	// StoreCall: a call of the store took so long, with the error. Tell answers
	// from failures by Answered.
	StoreCall func(op storage.Operation, elapsed time.Duration, err error)
}

func (o Observer) claim(m Message, c storage.Claim) {
	if o.Claim != nil {
		o.Claim(m, c)
	}
}

func (o Observer) run(m Message, r Result, err error, elapsed time.Duration) {
	if o.Run != nil {
		o.Run(m, r, err, elapsed)
	}
}

func (o Observer) leaseLost(l Loss) {
	if o.LeaseLost != nil {
		o.LeaseLost(l)
	}
}

func (o Observer) resultDropped(m Message, size int) {
	if o.ResultDropped != nil {
		o.ResultDropped(m, size)
	}
}

func (o Observer) deadLetterFailed(m Message, err error) {
	if o.DeadLetterFailed != nil {
		o.DeadLetterFailed(m, err)
	}
}

func (o Observer) failOpen(m Message, err error) {
	if o.FailOpen != nil {
		o.FailOpen(m, err)
	}
}

func (o Observer) storeCall(op storage.Operation, begun time.Time, err error) {
	if o.StoreCall != nil {
		o.StoreCall(op, time.Since(begun), err)
	}
}

// observed reports the calls a Processor makes of a store.
type observed struct {
	storage.Store
	call func(op storage.Operation, elapsed time.Duration, err error)
}

// observe returns the store itself if nobody wants to know.
func observe(s storage.Store, o Observer) storage.Store {
	if o.StoreCall == nil {
		return s
	}
	return observed{Store: s, call: o.StoreCall}
}

func (s observed) Claim(ctx context.Context, key storage.Key, req storage.ClaimRequest) (storage.Claim, error) {
	begun := time.Now()
	c, err := s.Store.Claim(ctx, key, req)
	s.call(storage.OpClaim, time.Since(begun), err)
	return c, err
}

func (s observed) Extend(ctx context.Context, lease storage.Lease, d time.Duration) error {
	begun := time.Now()
	err := s.Store.Extend(ctx, lease, d)
	s.call(storage.OpExtend, time.Since(begun), err)
	return err
}

func (s observed) Complete(ctx context.Context, lease storage.Lease, result []byte, retention time.Duration) error {
	begun := time.Now()
	err := s.Store.Complete(ctx, lease, result, retention)
	s.call(storage.OpComplete, time.Since(begun), err)
	return err
}

func (s observed) Fail(ctx context.Context, lease storage.Lease, f storage.Failure) error {
	begun := time.Now()
	err := s.Store.Fail(ctx, lease, f)
	s.call(storage.OpFail, time.Since(begun), err)
	return err
}
