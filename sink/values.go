package sink

import (
	"context"
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Values keeps large values outside of Kafka. The methods are safe for concurrent use.
type Values interface {
	// Takes reports whether a value of so many bytes is kept outside.
	Takes(bytes int) bool
	// Parallel is how many values are written at a time, at most.
	Parallel() int
	// Put keeps the value of the event's record durably, in a single attempt within a deadline,
	// and makes the record refer to the value. The same event again is the same value at the
	// same place, and no other value is written over. An error is a *transform.BadEvent, of the
	// class failure.Config, or may pass.
	Put(ctx context.Context, ev *transform.Event) error
	// Get gives a record with a reference its value again. Errors are as Put's.
	Get(ctx context.Context, ev *transform.Event) error
	// Renew has the value behind a record's reference kept for as long as a new one. Errors
	// are as Put's: a missing value makes a bad event.
	Renew(ctx context.Context, ev *transform.Event) error
}

// WithValues has the sink keep large values of records elsewhere: also of dead letters, and
// of parked events.
func WithValues(v Values) Option { return func(k *Kafka) { k.values = v } }

// valueWaits are between two attempts to keep a value.
var valueWaits = backoff.Range{First: waits.First, Longest: waits.Longest}

// large reports whether the event's value has to be kept elsewhere before the event is sent.
func (k *Kafka) large(ev *transform.Event) bool {
	return k.values != nil && !ev.Referred() && k.values.Takes(len(ev.Record.Value))
}

// outside reports whether the event's value has to be written to the store before the event is
// sent, or renewed there.
func (k *Kafka) outside(ev *transform.Event) bool { return k.large(ev) || k.stored(ev) && k.plain(ev) }

// keep keeps the value of the first event, and meanwhile those of the next events with a
// known form, and makes the records refer to them. Values of references from an earlier
// publication are renewed. keep waits for the store until ctx ends.
// The error of an event that the store can never take is a *transform.BadEvent; that of a next
// event shows in the event's turn.
func (k *Kafka) keep(ctx context.Context, events []*transform.Event) error {
	wanted := events[:1:1]
	for _, ev := range events[1:] {
		if k.held(ev) != nil {
			continue
		}
		if !k.plain(ev) {
			if k.stored(ev) {
				continue
			}
			if known, err := k.encoder.Encode(ev); !known {
				break
			} else if err != nil {
				continue
			}
		}
		if k.outside(ev) {
			wanted = append(wanted, ev)
		}
	}
	return k.persist(ctx, wanted[0], func() error { return k.putAll(ctx, wanted)[0] })
}

// putAll tries once to keep or renew the values, several at a time. It uses nothing of the sink
// that changes.
func (k *Kafka) putAll(ctx context.Context, events []*transform.Event) []error {
	errs := make([]error, len(events))
	slots := make(chan struct{}, k.values.Parallel())
	var writing sync.WaitGroup
	for i, ev := range events {
		if ev.Referred() || ev.Renewed() {
			continue
		}
		slots <- struct{}{}
		writing.Go(func() {
			if k.stored(ev) {
				errs[i] = k.values.Renew(ctx, ev)
			} else {
				errs[i] = k.values.Put(ctx, ev)
			}
			<-slots
		})
	}
	writing.Wait()
	return errs
}

// stored reports whether the record has a reference of an earlier publication in the place of
// the value: it comes from a dead letter, from the quarantine, or from a topic replayed. The value
// may be near the end of its retention.
func (k *Kafka) stored(ev *transform.Event) bool {
	if k.values == nil || ev.Referred() || ev.Renewed() {
		return false
	}
	_, stored := transform.ReferenceOf(&ev.Record)
	return stored
}

// persist tries until ctx ends, and tells of the wait. A *transform.BadEvent is final, and an
// error of another class than failure.Transient.
func (k *Kafka) persist(ctx context.Context, ev *transform.Event, try func() error) error {
	retry := backoff.Series{Range: valueWaits}
	for {
		if done, err := k.judgeValue(ctx, ev, try()); done || err != nil {
			return err
		}
		if err := retry.Pause(ctx); err != nil {
			return err
		}
	}
}

// judgeValue judges the outcome of an attempt; done: the event can go on. An error is final.
func (k *Kafka) judgeValue(ctx context.Context, ev *transform.Event, err error) (done bool, _ error) {
	_, bad := errors.AsType[*transform.BadEvent](err)
	switch {
	case err == nil || bad:
		if k.unkept {
			k.unkept = false
			k.observer.ValuesWaiting(nil)
			k.log.Info("the claim store answers again")
		}
		return err == nil, err
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case failure.ClassOf(err) != failure.Transient:
		return false, err
	}
	k.unkept = true
	k.observer.ValuesWaiting(err)
	k.complain("an event waits for the claim store, will try again", zap.String("topic", ev.Record.Topic), zap.String("event_id", ev.Name()),
		zap.Error(err), zap.String("remedy", failure.RemedyOf(err)))
	return false, nil
}

// awaitValues returns once the values of the entries are kept, also those of dead letters; see
// Await. A value that the store can never take is left to Transact.
func (x *Transactions) awaitValues(ctx context.Context, entries []Entry, end func() error) error {
	if x.k.values == nil {
		return nil
	}
	large, open, err := x.largeAside(ctx, entries)
	if len(large) == 0 || err != nil {
		return err
	}
	if open {
		if err := end(); err != nil {
			return err
		}
	}
	retry := backoff.Series{Range: valueWaits}
	for {
		if large, err = x.keepAside(ctx, large); len(large) == 0 || err != nil {
			return err
		}
		if err := retry.Pause(ctx); err != nil {
			return err
		}
	}
}

// largeAside are the events with values to be kept or renewed. open: a transaction is open.
func (x *Transactions) largeAside(ctx context.Context, entries []Entry) (large []*transform.Event, open bool, err error) {
	leave, err := x.enter(ctx)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	for _, e := range entries {
		ev := e.Event
		if e.Bad != nil {
			_, value := ev.Plain()
			ev = &transform.Event{ID: ev.ID, Record: kgo.Record{Topic: x.k.deadLetter, Value: value}}
		} else if !x.k.plain(ev) {
			continue // its form is not known, and Transact says why
		}
		if x.k.outside(ev) {
			large = append(large, ev)
		}
	}
	return large, x.enlisted != nil, nil
}

// keepAside tries once, and returns the events whose values have to wait. Others may use the
// sink meanwhile.
func (x *Transactions) keepAside(ctx context.Context, large []*transform.Event) (left []*transform.Event, err error) {
	errs := x.k.putAll(ctx, large)
	leave, err := x.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	for i, ev := range large {
		done, err := x.k.judgeValue(ctx, ev, errs[i])
		if _, bad := errors.AsType[*transform.BadEvent](err); done || bad {
			continue
		}
		if err != nil {
			return nil, x.k.stop(ctx, err)
		}
		left = append(left, ev)
	}
	return left, nil
}
