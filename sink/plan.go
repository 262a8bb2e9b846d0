package sink

import (
	"context"
	"errors"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// plan puts the entries into rounds, with at most one batch for each partition,
// and returns the entries that must not be sent. plan may wait for topics.
func (x *Transactions) plan(ctx context.Context, entries []Entry) (rounds [][]placed, refused []Refusal, err error) {
	k := x.k
	k.rounds++
	clear(x.left)
	ahead := false
	var round []placed
	var t *topic
	for i := range entries {
		p := placed{Event: entries[i].Event, entry: i, wanted: entries[i].Event.Record.Partition}
		if entries[i].Bad != nil {
			if p, err = x.letter(ctx, i, entries[i]); err != nil {
				return nil, nil, err
			}
		}
		if !p.letter {
			if err = k.encode(ctx, p.Event, true); err == nil && k.outside(p.Event) {
				err = k.keep(ctx, []*transform.Event{p.Event})
			}
			if bad, ok := errors.AsType[*transform.BadEvent](err); ok {
				refused = append(refused, Refusal{i, bad})
				continue
			}
			if err != nil {
				return nil, nil, err
			}
		}
		if x.visible != nil && x.leaveOut(&p.Record) {
			continue
		}
		size := p.Size()
		if bad := k.tooLarge(p.Event, size); bad != nil && !p.letter {
			refused = append(refused, Refusal{i, bad})
			continue
		}
		if !ahead && k.topics[p.Record.Topic] == nil {
			ahead = true
			k.lookAhead(ctx, len(entries)-i, func(n int) string {
				if e := entries[i+n]; e.Bad == nil { // otherwise any name
					return e.Event.Record.Topic
				}
				return ""
			})
		}
		t, err = x.open(ctx, t, p.Event)
		if bad, ok := errors.AsType[*transform.BadEvent](err); ok && !p.letter {
			refused = append(refused, Refusal{i, bad})
			t = nil
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if !p.Asked.IsZero() && k.late(ctx, t, p.Event, true) {
			size = p.Size()
		}
		partition := t.choose(&p.Record)
		if !t.reserve(partition, recordSize(p.Event, size), x.limit) {
			rounds, round = append(rounds, round), nil
			k.rounds++
			t.begin(k.rounds)
			t.reserve(partition, recordSize(p.Event, size), x.limit)
		}
		p.Record.Partition = partition
		round = append(round, p)
	}
	if len(refused) > 0 {
		for _, round := range append(rounds, round) {
			eventsOf(round)
		}
		return nil, refused, nil
	}
	if len(round) > 0 {
		rounds = append(rounds, round)
	}
	return rounds, nil, nil
}

// open returns the topic of the record, with the requested partition. before is
// the topic of the previous record, or nil.
func (x *Transactions) open(ctx context.Context, before *topic, ev *transform.Event) (*topic, error) {
	k, t := x.k, before
	if t == nil || t.name != ev.Record.Topic {
		var err error
		if t, err = k.open(ctx, k.topics[ev.Record.Topic], ev.Record.Topic); err != nil {
			return nil, err
		}
	}
	wanted := ev.Record.Partition
	if wanted == transform.PartitionByKey || wanted >= 0 && wanted < t.partitions {
		return t, nil
	}
	return k.extend(ctx, t, wanted)
}

// letter is the dead letter of an entry, in the dead-letter topic.
func (x *Transactions) letter(ctx context.Context, i int, e Entry) (placed, error) {
	if x.k.deadLetter == "" {
		return placed{}, failure.Configf("set errors.dead_letter_topic", "no dead-letter topic is set")
	}
	if _, err := x.k.deadLetters(ctx); err != nil {
		return placed{}, err
	}
	letter, err := x.k.letter(ctx, e.Event, e.Bad)
	if err != nil {
		return placed{}, err
	}
	return placed{Event: letter, entry: i, wanted: transform.PartitionByKey, letter: true}, nil
}
