package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/isnil"
)

// DeadLetterFunc makes a dead letter durable before it returns nil. The record
// is RecordFrom(ctx). DeadLetterTopic makes one.
type DeadLetterFunc func(ctx context.Context, letter idempotency.DeadLetter) error

// FingerprintFunc returns the fingerprint of a record's payload; the empty one
// is not compared. It must be pure, and may be called concurrently.
type FingerprintFunc func(r *kgo.Record) storage.Fingerprint

// ValueBytes is the fingerprint of the record's value as it is.
func ValueBytes(r *kgo.Record) storage.Fingerprint {
	return idempotency.FingerprintBytes(r.Value)
}

// CanonicalJSON is the fingerprint of the record's value as a JSON document: its
// form (spaces, the order of members) does not count.
func CanonicalJSON(r *kgo.Record) storage.Fingerprint {
	return idempotency.FingerprintJSON(r.Value)
}

// Guard says how a Handler is made idempotent.
type Guard struct {
	// Scope names the consumer in the store: see storage.Key. Required,
	// except in a Config, where it is the group's name if empty. Set it before
	// the group is renamed: renaming the group must not rename the scope.
	Scope string
	// Runner claims and settles keys. Required.
	Runner idempotency.Runner
	// Key returns a record's id. Default: Header(DefaultIDHeader).
	Key KeyFunc
	// Fingerprint tells payloads apart. Default: ValueBytes.
	Fingerprint FingerprintFunc
	// DeadLetter takes records that cannot be run: those without a usable id,
	// and those whose id is known with another payload. Default: what the
	// Runner does with messages that it gives up, if it is an
	// idempotency.Refuser. Where that has no dead letters either, such a record
	// is never finished, and the records behind it wait.
	DeadLetter DeadLetterFunc
}

// Protect returns the guarded handler.
func (g Guard) Protect(h Handler) (Process, error) {
	if g.Key == nil {
		g.Key = Header(DefaultIDHeader)
	}
	if g.Fingerprint == nil {
		g.Fingerprint = ValueBytes
	}
	switch {
	case h == nil:
		return nil, errors.New("the handler is missing")
	case isnil.Value(g.Runner):
		return nil, errors.New("the guard's runner is missing")
	}
	if err := (storage.Key{Scope: g.Scope, ID: "any"}).Validate(); err != nil {
		return nil, fmt.Errorf("check the guard's scope: %w", err)
	}
	if err := checkKey(g.Key); err != nil {
		return nil, fmt.Errorf("check the guard's key: %w", err)
	}
	return func(ctx context.Context, r *kgo.Record) (idempotency.Result, error) { return g.process(ctx, r, h) }, nil
}

func (g *Guard) process(ctx context.Context, r *kgo.Record, h Handler) (idempotency.Result, error) {
	d := deliveryFrom(ctx)
	if d == nil || d.record != r {
		d = &delivery{record: r}
		ctx = withDelivery(ctx, d)
	}
	id, err := g.Key(r)
	m := idempotency.Message{Key: storage.Key{Scope: g.Scope, ID: id}}
	switch {
	case err != nil && !errors.Is(err, storage.ErrBadKey):
		err = fmt.Errorf("%w: %w", storage.ErrBadKey, err)
	case err == nil:
		err = m.Key.Validate()
	}
	if err != nil {
		return g.bury(ctx, m, err)
	}
	m.Fingerprint = g.Fingerprint(r)
	ran := false
	result, err := g.Runner.Run(ctx, m, func(ctx context.Context) ([]byte, error) {
		ran = true
		if d.started != nil {
			d.started()
		}
		d.handled, d.result = true, nil
		defer func() { d.handled = false }()
		err := h(ctx, r)
		return d.result, err
	})
	if !ran && !result.Done() && (errors.Is(err, storage.ErrMismatch) || errors.Is(err, storage.ErrBadKey)) {
		return g.bury(ctx, m, err)
	}
	return result, err
}

// bury writes the dead letter of a record that cannot be run.
func (g *Guard) bury(ctx context.Context, m idempotency.Message, reason error) (idempotency.Result, error) {
	if refuser, ok := g.Runner.(idempotency.Refuser); ok && g.DeadLetter == nil {
		return refuser.Refuse(ctx, m, reason)
	}
	if g.DeadLetter == nil {
		return idempotency.Result{Disposition: idempotency.Retry}, fmt.Errorf("%w (set Guard.DeadLetter to have such records put aside)", reason)
	}
	if err := g.DeadLetter(ctx, idempotency.DeadLetter{Message: m, Reason: reason}); err != nil {
		return idempotency.Result{Disposition: idempotency.Retry}, fmt.Errorf("bury a record (%w): %w", reason, err)
	}
	return idempotency.Result{Disposition: idempotency.DeadLettered, Reason: reason.Error()}, nil
}

// NotDone is the error of an Idempotent handler for a record that is not
// finished: its offset must not be committed, and the record must be handled
// again after Result.Wait.
type NotDone struct {
	Result idempotency.Result
	// Err says why, where there is more to say than the disposition.
	Err error
}

func (e *NotDone) Error() string {
	if e.Err == nil {
		return "record is not finished: " + e.Result.Disposition.String()
	}
	return "record is not finished: " + e.Result.Disposition.String() + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *NotDone) Unwrap() error { return e.Err }

// Idempotent makes a handler idempotent for those who have a poll loop of their
// own. It returns nil once the record is finished, now or before, and a
// *NotDone otherwise. What is pending on a record that is not finished is kept
// until its next call, by topic, partition and offset, unless the context has
// something pending.
func (g Guard) Idempotent(h Handler) (Handler, error) {
	process, err := g.Protect(h)
	if err != nil {
		return nil, err
	}
	kept := pendings{of: map[position]*idempotency.Pending{}}
	return func(ctx context.Context, r *kgo.Record) error {
		at := position{r.Topic, r.Partition, r.Offset}
		if !idempotency.HasPending(ctx) {
			ctx = idempotency.ContextWithPending(ctx, kept.take(at))
		}
		result, err := process(ctx, r)
		if result.Done() {
			return nil
		}
		kept.keep(at, result.Pending)
		return &NotDone{Result: result, Err: err}
	}, nil
}
