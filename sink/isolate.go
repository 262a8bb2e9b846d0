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

// isolate finds the bad events of a batch that the broker refused. A refusal
// names no record, so the batch is sent again in halves, one after the other.
// What can be written is written, in order; a record that is refused alone is
// bad. It returns the events that must be placed again, because their topic is
// gone or the client was renewed.
func (k *Kafka) isolate(ctx context.Context, s batch, reject Reject) ([]*transform.Event, error) {
	if s.by != k.client {
		return eventsOf(s.events), nil
	}
	if judge(s.err) == topicGone {
		k.forget(s.topic(), s.err)
		return eventsOf(s.events), nil
	}
	if len(s.events) == 1 && s.proven() {
		return nil, reject(ctx, s.events[0].Event, badEvent(s.err))
	}
	middle := (len(s.events) + 1) / 2
	for rest := s.events; len(rest) > 0; {
		if s.by != k.client { // renewed for a dead letter
			return eventsOf(rest), nil
		}
		half := rest[:min(middle, len(rest))]
		rest = rest[len(half):]
		batches, err := k.write(ctx, half, k.tally(half))
		if err != nil {
			return nil, err
		}
		for _, refused := range batches { // at most one: they are all in one partition
			orphans, err := k.isolate(ctx, refused, reject)
			if err != nil {
				return nil, err
			}
			if len(orphans) > 0 {
				return slices.Concat(orphans, eventsOf(rest)), nil
			}
		}
	}
	return nil, nil
}

// proven reports whether a refusal of a single event is certainly its own
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
