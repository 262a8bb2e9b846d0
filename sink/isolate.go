package sink

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// finish writes k.round, with its bad events passed to reject, and returns the
// events that must be placed again, in order: see isolate.
func (k *Kafka) finish(ctx context.Context, reject Reject) ([]*transform.Event, error) {
	batches, err := k.write(ctx, k.round, k.shares)
	if err != nil {
		return nil, err
	}
	var orphans []*transform.Event
	for _, s := range batches {
		more, err := k.isolate(ctx, s, reject)
		if err != nil {
			return nil, err
		}
		orphans = append(orphans, more...)
	}
	return orphans, nil
}

// isolate finds the bad events of a batch refused by the broker: the records it
// names. If it names none, the batch is sent again in halves, one after the other.
// Good records are written, in order; a record refused alone is bad. isolate
// returns the events that must be placed again, because the topic is gone or the
// client was renewed.
func (k *Kafka) isolate(ctx context.Context, s batch, reject Reject) ([]*transform.Event, error) {
	if s.by != k.client {
		return eventsOf(s.events), nil
	}
	if judge(s.err) == topicGone {
		k.forget(s.topic(), s.err)
		return eventsOf(s.events), nil
	}
	if len(s.events) == 1 && s.proven() {
		return nil, reject(ctx, s.events[0].Event, k.badEvent(s.topic(), s.cause(0)))
	}
	for at, part := 0, s.parts(); len(part) > 0; part = part[1:] {
		if s.by != k.client { // renewed for a dead letter
			return eventsOf(s.events[at:]), nil
		}
		these := s.events[at : at+part[0].events]
		at += part[0].events
		if part[0].refused != nil {
			if err := reject(ctx, these[0].Event, k.badEvent(s.topic(), part[0].refused)); err != nil {
				return nil, err
			}
			continue
		}
		these, err := k.unheld(ctx, these, reject)
		if err != nil {
			return nil, err
		}
		if len(these) == 0 {
			continue
		}
		batches, err := k.write(ctx, these, k.tally(these))
		if err != nil {
			return nil, err
		}
		for _, refused := range batches { // at most one: all are in a single partition
			orphans, err := k.isolate(ctx, refused, reject)
			if err != nil {
				return nil, err
			}
			if len(orphans) > 0 {
				return slices.Concat(orphans, eventsOf(s.events[at:])), nil
			}
		}
	}
	return nil, nil
}

// unheld passes the events that are held to reject, and returns the others.
func (k *Kafka) unheld(ctx context.Context, events []placed, reject Reject) ([]placed, error) {
	if k.holds == nil {
		return events, nil
	}
	var free []placed
	for _, p := range events {
		bad := k.held(p.Event)
		if bad == nil {
			free = append(free, p)
		} else if err := reject(ctx, p.Event, bad); err != nil {
			return nil, err
		}
	}
	return free, nil
}

// cut is a part of a refused batch.
type cut struct {
	events  int   // so many
	refused error // the reason of the refusal; nil: to be written separately
}

// parts cuts a refused batch, in order.
func (s *batch) parts() (parts []cut) {
	named := s.said.named(len(s.events))
	if len(named) == 0 {
		middle := (len(s.events) + 1) / 2
		return append(parts, cut{events: middle}, cut{events: len(s.events) - middle})[:min(2, len(s.events))]
	}
	at := 0
	for _, i := range named {
		if i > at {
			parts = append(parts, cut{events: i - at})
		}
		parts = append(parts, cut{1, s.cause(i)})
		at = i + 1
	}
	if left := len(s.events) - at; left > 0 {
		parts = append(parts, cut{events: left})
	}
	return parts
}

// cause is the broker's reason to refuse the event with the index.
func (s *batch) cause(index int) error {
	if s.said == nil {
		return s.err
	}
	return explained(s.err, s.said.records[int32(index)])
}

// proven reports whether a refusal of a single event is certainly the event's
// fault. A checksum may fail once for another reason.
func (s *batch) proven() bool {
	return s.alone || !errors.Is(s.err, kerr.CorruptMessage)
}

// eventsOf undoes the choice of partitions.
func eventsOf(placed []placed) []*transform.Event {
	events := make([]*transform.Event, len(placed))
	for i, p := range placed {
		p.Record.Partition = p.wanted
		events[i] = p.Event
	}
	return events
}
