package sink

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Encoder gives records their form on the wire.
type Encoder interface {
	// Encode encodes the record of an event, once, and asks nobody. known is false if Learn
	// has to be called first. An error is a *transform.BadEvent.
	Encode(ev *transform.Event) (known bool, err error)
	// Learn asks once, within a deadline, for the needs of Encode. An error is a
	// *transform.BadEvent, or may pass.
	Learn(ctx context.Context, ev *transform.Event) error
}

// WithEncoder has the sink encode the records of events, but not dead letters, nor the
// records of the quarantine. Both keep the plain form.
func WithEncoder(e Encoder) Option { return func(k *Kafka) { k.encoder = e } }

// schemaWaits are those between two questions for a schema.
var schemaWaits = backoff.Range{First: waits.First, Longest: waits.Longest}

// encode encodes the event's record. Where a question is needed, encode waits for the
// answer or, without ask, returns errRoundFull. The error of an unfit event is a
// *transform.BadEvent.
func (k *Kafka) encode(ctx context.Context, ev *transform.Event, ask bool) error {
	if k.plain(ev) {
		return nil
	}
	if k.stored(ev) {
		if !ask {
			return errRoundFull
		}
		if err := k.persist(ctx, ev, func() error { return k.values.Get(ctx, ev) }); err != nil {
			return err
		}
	}
	retry := backoff.Series{Range: schemaWaits}
	for {
		known, err := k.encoder.Encode(ev)
		if known {
			return err
		}
		if !ask {
			return errRoundFull
		}
		if done, err := k.learnSchema(ctx, ev); done || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if err := retry.Pause(ctx); err != nil {
			return err
		}
	}
}

// plain reports whether the event's record stays as it is.
func (k *Kafka) plain(ev *transform.Event) bool {
	return k.encoder == nil || ev.Encoded() || k.quarantine != "" && ev.Record.Topic == k.quarantine
}

// learnSchema asks once; done: the event can be encoded. An error is final.
func (k *Kafka) learnSchema(ctx context.Context, ev *transform.Event) (done bool, err error) {
	err = k.encoder.Learn(ctx, ev)
	_, bad := errors.AsType[*transform.BadEvent](err)
	switch {
	case err == nil || bad:
		if k.unlearnt {
			k.unlearnt = false
			k.observer.SchemaWaiting(nil)
			k.log.Info("the schema that an event waited for is known")
		}
		return err == nil, err
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	}
	k.unlearnt = true
	k.observer.SchemaWaiting(err)
	k.complain("an event waits for its schema, will ask again", zap.String("topic", ev.Record.Topic), zap.String("event_id", ev.Name()), zap.Error(err))
	return false, nil
}

// awaitSchemas returns once the schemas of the entries are known; see Await.
func (x *Transactions) awaitSchemas(ctx context.Context, entries []Entry, end func() error) error {
	if x.k.encoder == nil {
		return nil
	}
	retry := backoff.Series{Range: schemaWaits}
	for {
		done, open, err := x.encodeAside(ctx, entries)
		if done || err != nil {
			return err
		}
		if open {
			if err := end(); err != nil {
				return err
			}
		}
		if err := retry.Pause(ctx); err != nil {
			return err
		}
	}
}

// encodeAside encodes entries up to the first whose schema is not known and cannot be
// learned now. open: a transaction is open. Unfit events are left to Transact.
func (x *Transactions) encodeAside(ctx context.Context, entries []Entry) (done, open bool, err error) {
	leave, err := x.enter(ctx)
	if err != nil {
		return false, false, err
	}
	defer leave()
	for i := range entries {
		ev := entries[i].Event
		if entries[i].Bad != nil || x.k.plain(ev) {
			continue
		}
		if done, err := x.k.encodeNow(ctx, ev); !done {
			return false, x.enlisted != nil, err
		}
	}
	return true, false, nil
}

// encodeNow encodes the event's record, unless the event is bad; done is false if the schema
// cannot be learned now.
func (k *Kafka) encodeNow(ctx context.Context, ev *transform.Event) (done bool, err error) {
	if k.stored(ev) {
		done, err := k.judgeValue(ctx, ev, k.values.Get(ctx, ev))
		if _, bad := errors.AsType[*transform.BadEvent](err); bad {
			return true, nil
		}
		if !done {
			return false, err
		}
	}
	for {
		if known, _ := k.encoder.Encode(ev); known {
			return true, nil
		}
		learned, err := k.learnSchema(ctx, ev)
		if _, bad := errors.AsType[*transform.BadEvent](err); bad {
			return true, nil
		}
		if !learned {
			return false, err
		}
	}
}
