package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// hanging returns the transactions holding consumers back in a partition and unknown to any
// coordinator, so that perhaps only an operator ends them (KIP-664). known are the producer
// ids of the coordinators' open transactions. The producer has been silent for a while. With
// an error that isPartly there may be some, too.
func (c *cluster) hanging(ctx context.Context, known []int64, silent time.Duration) (Transactions, error) {
	missing := &unasked{}
	held, err := c.heldPartitions(ctx, missing)
	if err != nil || len(held) == 0 {
		return nil, cmp.Or(err, missing.err(c.cfg))
	}
	if away, err := broker.CoordinatorsAway(ctx, c.client); err == nil && away > 0 { // one of their transactions would look as if it hung
		missing.note(fmt.Sprintf("%d partitions of topic %q", away, broker.TransactionTopic), kerr.LeaderNotAvailable)
		return nil, missing.err(c.cfg)
	}
	producers, err := broker.Producers(ctx, c.client, held)
	if err := missing.take(err); err != nil {
		return nil, fmt.Errorf("describe producers: %w", err)
	}
	var all Transactions
	for _, p := range producers {
		if t, ok := hangs(p, known, silent); ok {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b Transaction) int { return a.compare(b) })
	return all, missing.err(c.cfg)
}

// stateHanging is in place of a coordinator's state.
const stateHanging = "Hanging"

// hangs is the transaction of a producer in a partition, if unknown to all
// coordinators. A transaction just begun, or just ended, does not hang yet.
func hangs(p broker.Producer, known []int64, silent time.Duration) (Transaction, bool) {
	age := time.Since(p.Last)
	if p.Open < 0 || age < silent || slices.Contains(known, p.ID) {
		return Transaction{}, false
	}
	return Transaction{
		ID:     fmt.Sprintf("producer %d/%d", p.ID, p.Epoch),
		State:  stateHanging,
		Age:    age,
		Topics: []string{p.Topic},
		Remedy: hiddenOrHanging + Start{p.Topic, p.Partition, p.Open}.command(),
	}, true
}

// hiddenOrHanging goes before the command to end a transaction. Brokers leave
// out transactional ids the user may not describe: an unlisted transaction may be
// another program's, and well.
const hiddenOrHanging = "another program may have it under a transactional id that this user may not describe, until it is older than transaction.max.timeout.ms (15 minutes by default); if none has, end it: "

// stuck returns how an operator ends the transaction that holds readers of the topic back;
// nil: the transaction may end by itself. An answer of some brokers is no proof.
func (c *cluster) stuck(ctx context.Context, topic string) error {
	if c.cfg.Delivery != sink.DeliveryExactlyOnce {
		return nil
	}
	open, err := c.open(ctx, "")
	if err != nil {
		return nil
	}
	for _, t := range open {
		if t.Remedy != "" && slices.Contains(t.Topics, topic) {
			return &failure.Error{Class: failure.Transient, Remedy: t.Remedy + "; then repeat the command", Err: errors.New(t.holding())}
		}
	}
	return nil
}

// settled is how long a producer must have been silent: between the answers of
// coordinators and partitions a transaction may begin or end.
const settled = time.Minute

// heldPartitions are the partitions of the cluster with an open transaction, except for
// partitions without an answer, which go to missing.
func (c *cluster) heldPartitions(ctx context.Context, missing *unasked) ([]broker.Held, error) {
	stable, err := broker.StableOffsets(ctx, c.client)
	if err := missing.take(err); err != nil {
		return nil, fmt.Errorf("list the last stable offsets: %w", err)
	}
	ends, err := broker.EndOffsets(ctx, c.client)
	if err := missing.take(err); err != nil {
		return nil, fmt.Errorf("list the ends of topics: %w", err)
	}
	for topic, partitions := range ends {
		for partition, end := range partitions {
			if end.Err != nil && partition >= 0 {
				missing.note(broker.Partitions(topic, partition), end.Err)
			}
		}
	}
	return broker.HeldBack(stable, ends), nil
}
