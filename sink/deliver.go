package sink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// placed is an event with a partition chosen, in Record.Partition.
type placed struct {
	*transform.Event
	// wanted is the partition asked for by the event.
	wanted int32

	// In a transaction:
	entry  int  // the index
	letter bool // a dead letter
}

// Deliver implements Sink. It works in rounds: as many events from the front as
// fit into one Kafka batch for each partition are sent together, and the next
// round starts when the outcome of each event is known.
//
// Deliver sets Record.Partition to the partition written to, and franz-go sets
// other fields of the record.
func (k *Kafka) Deliver(ctx context.Context, events []*transform.Event, reject Reject) error {
	if err := k.check(); err != nil {
		return err
	}
	ctx, release := k.connections.guard(ctx)
	defer release()
	return k.stop(ctx, k.deliver(ctx, events, reject))
}

func (k *Kafka) deliver(ctx context.Context, events []*transform.Event, reject Reject) error {
	ahead := false
	for len(events) > 0 {
		if !ahead && k.topics[events[0].Record.Topic] == nil {
			ahead = true
			k.lookAhead(ctx, len(events), func(i int) string { return events[i].Record.Topic })
		}
		bad, err := k.fill(ctx, events)
		if err != nil {
			return err
		}
		n := len(k.round)
		orphans, err := k.finish(ctx, reject)
		if err != nil {
			return err
		}
		for _, t := range k.loading {
			if err := k.learn(ctx, t); err != nil {
				return err
			}
		}
		if len(orphans) > 0 { // their topic is gone; they go first when it is back
			events = slices.Concat(orphans, events[n:])
			continue
		}
		if bad != nil {
			if err := reject(ctx, events[n], bad); err != nil {
				return err
			}
			n++
		}
		events = events[n:]
	}
	return nil
}

// batchOverhead is more than the size of a record batch's header.
const batchOverhead = 128

// errRoundFull ends a round before an event, the first of the next round.
var errRoundFull = errors.New("round full")

// fill makes k.round the next round: events from the front until a partition's
// batch is full. It stops early at an event that must not be sent, and returns
// the reason.
func (k *Kafka) fill(ctx context.Context, events []*transform.Event) (*transform.BadEvent, error) {
	k.round, k.shares, k.loading = k.round[:0], k.shares[:0], nil
	k.rounds++
	var t *topic
	for i := range events {
		var err error
		if t, err = k.place(ctx, t, events[i:]); err == nil {
			continue
		}
		if errors.Is(err, errRoundFull) {
			return nil, nil
		}
		if bad, ok := errors.AsType[*transform.BadEvent](err); ok {
			return bad, nil
		}
		return nil, err
	}
	return nil, nil
}

// place adds the first event to the round. t is the topic of the previous event;
// place returns the event's own. Questions to the cluster are asked for the
// first event of a round only, so they hold up no earlier event.
//
// A round has a single event of a topic that the client has not loaded. Until it has, it
// puts records aside. It then sends them while it is still filling their batches, and
// misses a due renumbering. With a single record neither can happen.
func (k *Kafka) place(ctx context.Context, t *topic, events []*transform.Event) (*topic, error) {
	ev := events[0]
	rec, first := &ev.Record, len(k.round) == 0
	if bad := k.held(ev); bad != nil {
		return nil, bad
	}
	if err := k.encode(ctx, ev, first); err != nil {
		return nil, err
	}
	if k.outside(ev) {
		if !first {
			return nil, errRoundFull
		}
		if err := k.keep(ctx, events); err != nil {
			return nil, err
		}
	}
	size := ev.Size()
	if bad := k.tooLarge(ev, size); bad != nil {
		return nil, bad
	}
	if t == nil || t.name != rec.Topic {
		if t = k.topics[rec.Topic]; t == nil && !first {
			return nil, errRoundFull
		}
		var err error
		if t, err = k.open(ctx, t, rec.Topic); err != nil {
			return nil, err
		}
	}
	fresh := t.fresh()
	if fresh && t.loads == k.rounds {
		return nil, errRoundFull
	}
	if !ev.Asked.IsZero() {
		if !t.timed && !first {
			return nil, errRoundFull
		}
		if k.late(ctx, t, ev, first) {
			size = ev.Size()
		}
	}
	wanted := rec.Partition
	if wanted != transform.PartitionByKey && (wanted < 0 || wanted >= t.partitions) {
		if !first {
			return nil, errRoundFull
		}
		var err error
		if t, err = k.extend(ctx, t, wanted); err != nil {
			return nil, err
		}
	}
	partition := t.choose(rec)
	if !t.reserve(partition, recordSize(ev, size), int(k.cfg.MaxRecordBytes)-batchOverhead) {
		return nil, errRoundFull
	}
	rec.Partition = partition
	if fresh {
		t.loads = k.rounds
		k.loading = append(k.loading, t)
	}
	k.count(t, partition, len(k.round))
	k.round = append(k.round, placed{Event: ev, wanted: wanted})
	return t, nil
}

// useEvery is the least time between two calls of TopicUsed for a topic.
const useEvery = time.Minute

// open prepares the topic for the round; t is nil for an unresolved topic.
func (k *Kafka) open(ctx context.Context, t *topic, name string) (*topic, error) {
	if t == nil {
		var err error
		if t, err = k.resolve(ctx, name, missingPolicy(k.cfg)); err != nil {
			return nil, err
		}
	}
	if t.round != k.rounds {
		if now := time.Now(); now.Sub(t.told) >= useEvery {
			t.told = now
			k.observer.TopicUsed(name)
		}
		if n := t.known.n.Load(); n > t.partitions {
			k.changed(t, n)
		}
		t.begin(k.rounds)
	}
	return t, nil
}

// extend looks for the partition in a topic that may have grown.
func (k *Kafka) extend(ctx context.Context, t *topic, wanted int32) (*topic, error) {
	n, err := k.resolve(ctx, t.name, missingPolicy(k.cfg))
	if err != nil {
		return nil, err
	}
	if n.partitions != t.partitions {
		k.changed(t, n.partitions)
	}
	if wanted < 0 || wanted >= n.partitions {
		return nil, &transform.BadEvent{
			Reason: transform.ReasonPartitionRange,
			Err:    fmt.Errorf("partition %d of topic %q, which has %d", wanted, n.name, n.partitions),
		}
	}
	if err := k.learn(ctx, n); err != nil {
		return nil, err
	}
	n.begin(k.rounds)
	return n, nil
}

// TooLarge returns the refusal of an event larger than MaxRecordBytes, or nil.
func TooLarge(ev *transform.Event, cfg Options) *transform.BadEvent {
	if size := ev.Size(); size > int64(cfg.MaxRecordBytes) {
		return tooLarge(size, cfg.MaxRecordBytes)
	}
	return nil
}

// LargestParked is the most bytes of a parked event: those of a request.
func LargestParked(cfg Options) int64 { return int64(requestBytes(cfg)) - 2*requestOverhead }

func tooLarge(size int64, limit int32) *transform.BadEvent {
	return &transform.BadEvent{
		Reason: transform.ReasonRecordTooLarge,
		Err: failure.Configf(fmt.Sprintf("raise sink.kafka.max_record_bytes to %d or more, and %s of its topic to as much", size+batchOverhead, MaxMessageBytes),
			"%d bytes of key, value and headers are more than sink.kafka.max_record_bytes, %d", size, limit),
	}
}

// recordSize is an upper bound of the record's size in a batch, before
// compression. size is the event's.
func recordSize(ev *transform.Event, size int64) int {
	const recordOverhead, headerOverhead = 40, 10 // the longest lengths, deltas and attributes
	return int(size) + recordOverhead + headerOverhead*len(ev.Record.Headers)
}
