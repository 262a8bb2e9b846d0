package sink

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// batch is a partition's share of a round, from the first event that is not
// durable on, with the reason.
type batch struct {
	events []placed
	err    error
	// alone: the events were sent without others.
	alone bool
	// by is the client that sent the events.
	by *kgo.Client
	// said is the broker's word on the whole batch, or nil.
	said *refusal
}

func (s *batch) topic() string { return s.events[0].Record.Topic }

// write sends the round until the outcome of each event is known: durable, or in
// a returned batch. Such a batch has the verdict badRecord or topicGone, or the
// client was renewed. Each partition must have at most one batch of the round,
// the share.
func (k *Kafka) write(ctx context.Context, round []placed, shares []*share) ([]batch, error) {
	var open []batch
	retry := backoff.Series{Range: waits}
	for ; ; shares = k.tally(round) {
		if err := k.send(ctx, round); err != nil {
			return nil, err
		}
		if err := k.believe(ctx, round, shares); err != nil {
			return nil, err
		}
		k.raise(round, shares, 0)
		if len(k.failed) == 0 {
			k.numbered()
			k.goOn()
			return open, nil
		}
		batches := k.batches(round)
		renewed, err := k.renew(ctx)
		if err != nil {
			return nil, err
		}
		if renewed {
			return append(open, batches...), nil
		}
		var again []placed
		for _, s := range batches {
			switch judge(s.err) {
			case passing:
				k.complain("Kafka did not take records, retrying", zap.String("topic", s.topic()),
					zap.Int32("partition", s.events[0].Record.Partition), zap.Error(s.err))
				again = append(again, s.events...)
			case untimely:
				k.untimely(ctx, &s)
				again = append(again, s.events...)
			case badRecord, topicGone:
				open = append(open, s)
			default:
				return nil, k.fatal(&s)
			}
		}
		if len(again) == 0 {
			return open, nil
		}
		round = again
		k.client.ForceMetadataRefresh()
		if err := retry.Pause(ctx); err != nil {
			return nil, err
		}
	}
}

// send hands the round to the client and waits for the outcome of each record.
// k.failed then has the errors.
func (k *Kafka) send(ctx context.Context, round []placed) error {
	clear(k.failed)
	k.said.forget()
	now := time.Now()
	k.barrier.close()
	for i := range round {
		stamp(round[i].Event, now)
		// Not ctx: a record in flight cannot be called back.
		k.client.Produce(context.Background(), &round[i].Record, k.onDone)
	}
	k.barrier.open()
	return k.flush(ctx, len(round))
}

const (
	// stallAfter is well above any latency of a working cluster.
	stallAfter = 10 * time.Second
	// flushAgain is the time between two flushes. A client that was refused a
	// producer id fails its records, but may miss the first record of a topic
	// just learned of.
	flushAgain = time.Second
)

// flush waits for the outcome of each record. The client retries in silence, so
// flush logs a cluster that takes nothing.
func (k *Kafka) flush(ctx context.Context, records int) error {
	start := time.Now()
	for {
		some, cancel := context.WithTimeout(ctx, flushAgain)
		err := k.client.Flush(some)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if stalled := time.Since(start); stalled >= stallAfter && k.lease.Held() {
			k.complain("Kafka has not taken records yet, the client retries",
				zap.Int("records", records), zap.Duration("since", stalled.Round(time.Second)))
		}
	}
}

// complain logs a warning about lasting trouble, now and then.
func (k *Kafka) complain(msg string, fields ...zap.Field) {
	if now := time.Now(); now.Sub(k.complained) >= reportEvery {
		k.complained = now
		k.log.Warn(msg, fields...)
	}
}

// batches splits the failed rest of the round by partition, in order. The client
// fails all records from the first failure to the end of a batch, so no durable
// record follows. If a durable record did follow, it would be repeated: a repeat
// is allowed, another order is not.
func (k *Kafka) batches(round []placed) []batch {
	index, taken := make(map[partition]int), make(map[partition]bool)
	var batches []batch
	for _, p := range round {
		of := partition{p.Record.Topic, p.Record.Partition}
		i, open := index[of]
		err := k.failed[&p.Record]
		if !open {
			if err == nil {
				taken[of] = true
				continue
			}
			i = len(batches)
			index[of] = i
			s := batch{err: err, alone: len(round) == 1, by: k.client}
			if said := k.saidOf(of); said != nil && !taken[of] {
				s.said, s.err = said, explained(err, said.text)
			}
			batches = append(batches, s)
		}
		batches[i].events = append(batches[i].events, p)
	}
	return batches
}

// saidOf is a broker's word on the batch of the partition, or nil.
func (k *Kafka) saidOf(p partition) *refusal {
	id := topicID{}
	if acked := k.acked[p.topic]; acked != nil {
		id = acked.id
	}
	return k.said.of(p.topic, id, p.number)
}
