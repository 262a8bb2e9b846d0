package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/claimcheck"
	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/ahead"
	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/usercode"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// Once says how a handler acts once on each record. The dead letters, the
// retention and the times are the Runner's.
type Once struct {
	// Runner claims and settles keys. Required.
	Runner idempotency.Runner
	// Scope names the consumer in the store: see storage.Key. Required, except in
	// a Config, where it is the group's name if empty. Set it before the group is
	// renamed: renaming the group must not rename the scope.
	Scope string
	// ID returns the id of a record's message; Header("id") if nil, as in records
	// of cdc-outbox and the Debezium outbox event router. An error means the
	// record has none, now or ever: it becomes a dead letter. ID must be pure, and
	// may be called concurrently.
	ID func(r *kgo.Record) (string, error)
	// Fingerprint tells values apart; idempotency.FingerprintBytes if nil, also of values
	// kept outside of Kafka. An empty fingerprint is not compared. Fingerprint must be
	// pure, and may be called concurrently; no record with a reference is compared by it.
	Fingerprint func(value []byte) storage.Fingerprint
}

// Wrap is for poll loops of your own. The record is finished, and the offset
// may be committed, once the result is Done. Otherwise the Process must get the
// record again, after Result.Wait. The pending state until then is kept here,
// by topic, partition and offset.
func (o Once) Wrap(h Handler) (Process, error) {
	process, err := o.protect(h)
	if err != nil {
		return nil, err
	}
	kept := pendings{of: map[position]*idempotency.Pending{}}
	return func(ctx context.Context, r *kgo.Record) (idempotency.Result, error) {
		at := position{r.Topic, r.Partition, r.Offset}
		ctx = withDelivery(ctx, &delivery{record: r, pending: kept.take(at)})
		result, err := process(ctx, r)
		kept.keep(at, result.Pending)
		return result, err
	}, nil
}

// protect returns the guarded handler. The pending state is the caller's.
func (o Once) protect(h Handler) (Process, error) {
	if o.ID == nil {
		o.ID = Header(idHeader)
	}
	switch {
	case h == nil:
		return nil, errors.New("the handler is missing")
	case usercode.IsNil(o.Runner):
		return nil, errors.New("the runner is missing")
	}
	if err := (storage.Key{Scope: o.Scope, ID: "any"}).Validate(); err != nil {
		return nil, fmt.Errorf("check the scope: %w", err)
	}
	if err := checkID(o.ID); err != nil {
		return nil, fmt.Errorf("check ID: %w", err)
	}
	return func(ctx context.Context, r *kgo.Record) (idempotency.Result, error) { return o.process(ctx, r, h) }, nil
}

func (o *Once) process(ctx context.Context, r *kgo.Record, h Handler) (idempotency.Result, error) {
	d := deliveryFrom(ctx)
	if d == nil || d.record != r {
		d = &delivery{record: r}
		ctx = withDelivery(ctx, d)
	}
	id, err := o.ID(r)
	m := idempotency.Message{Key: storage.Key{Scope: o.Scope, ID: id}, Pending: d.pending}
	switch {
	case err != nil && !errors.Is(err, storage.ErrBadKey):
		err = fmt.Errorf("%w: %w", storage.ErrBadKey, err)
	case err == nil:
		err = m.Key.Validate()
	}
	if err != nil && !o.shadow() {
		return o.refuse(ctx, m, err)
	}
	m.Fingerprint = o.fingerprint(r)
	if d.turn != nil {
		d.turn.Key = m.Key
		d.turn.Next = func(own bool) (storage.Key, storage.Fingerprint, bool) {
			return o.following(func() *kgo.Record { return d.next(own) })
		}
		ctx = ahead.WithTurn(ctx, d.turn)
	}
	return o.Runner.Run(ctx, m, func(ctx context.Context) ([]byte, error) {
		if d.started != nil {
			d.started()
		}
		d.handled, d.result = true, nil
		defer func() { d.handled = false }()
		err := h(ctx, r)
		return d.result, err
	})
}

// fingerprint is that of the record's value, here or elsewhere.
func (o *Once) fingerprint(r *kgo.Record) storage.Fingerprint {
	ref, elsewhere := claimcheck.Of(r.Value, r.Headers)
	switch {
	case o.Fingerprint != nil && elsewhere:
		return ""
	case o.Fingerprint != nil:
		return o.Fingerprint(r.Value)
	case elsewhere:
		return ref.Fingerprint()
	}
	return idempotency.FingerprintBytes(r.Value)
}

// following returns the message of the record coming next. A record without an
// id is left to the normal turn.
func (o *Once) following(next func() *kgo.Record) (key storage.Key, fingerprint storage.Fingerprint, ok bool) {
	err := usercode.Call(func() error {
		r := next()
		if r == nil {
			return nil
		}
		id, err := o.ID(r)
		if err == nil {
			key, fingerprint, ok = storage.Key{Scope: o.Scope, ID: id}, o.fingerprint(r), true
		}
		return err
	})
	return key, fingerprint, ok && err == nil
}

// shadow tells whether the Runner only looks on: the handler runs in any case.
func (o *Once) shadow() bool {
	s, ok := o.Runner.(interface{ Shadow() bool })
	return ok && s.Shadow()
}

// refuse has the Runner write the dead letter of a record unfit to run.
func (o *Once) refuse(ctx context.Context, m idempotency.Message, reason error) (idempotency.Result, error) {
	refuser, ok := o.Runner.(interface {
		Refuse(ctx context.Context, m idempotency.Message, reason error) (idempotency.Result, error)
	})
	if !ok {
		return idempotency.Result{Disposition: idempotency.Retry}, fmt.Errorf("%w (the Runner takes no such records)", reason)
	}
	return refuser.Refuse(ctx, m, reason)
}
