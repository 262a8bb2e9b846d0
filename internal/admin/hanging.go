package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
)

// hanging returns the transactions that hold consumers back in a partition and of
// which no coordinator tells, so that perhaps nothing ends them but an operator (KIP-664).
// known are the producer ids of those that coordinators have open. Its producer
// has been silent for a while. With an error that isPartly there may be some, too.
func (c *cluster) hanging(ctx context.Context, known []int64, silent time.Duration) (Transactions, error) {
	admin := broker.Admin(c.client)
	missing := &unasked{}
	held, err := heldPartitions(ctx, admin, missing)
	if err != nil || len(held) == 0 {
		return nil, cmp.Or(err, missing.err(c.cfg))
	}
	if away, err := coordinatorsAway(ctx, admin); err == nil && away > 0 { // one of theirs would look as if it hung
		missing.note(fmt.Sprintf("%d partitions of topic %q", away, transactionState), kerr.LeaderNotAvailable)
		return nil, missing.err(c.cfg)
	}
	described, err := admin.DescribeProducers(ctx, held)
	if err := missing.take(err); err != nil {
		return nil, fmt.Errorf("describe producers: %w", err)
	}
	var all Transactions
	described.EachPartition(func(p kadm.DescribedProducersPartition) {
		for _, producer := range p.ActiveProducers.Sorted() {
			if t, ok := hangs(producer, known, silent); ok {
				all = append(all, t)
			}
		}
	})
	slices.SortFunc(all, func(a, b Transaction) int { return a.compare(b) })
	return all, missing.err(c.cfg)
}

// stateHanging is in place of a state that a coordinator tells.
const stateHanging = "Hanging"

// hangs is the transaction of a producer in a partition, if there is one that
// no coordinator knows. A transaction just begun, or just ended, is not hanging
// yet.
func hangs(p kadm.DescribedProducer, known []int64, silent time.Duration) (Transaction, bool) {
	age := time.Since(time.UnixMilli(p.LastTimestamp))
	if p.CurrentTxnStartOffset < 0 || age < silent || slices.Contains(known, p.ProducerID) {
		return Transaction{}, false
	}
	return Transaction{
		ID:     fmt.Sprintf("producer %d/%d", p.ProducerID, p.ProducerEpoch),
		State:  stateHanging,
		Age:    age,
		Topics: []string{p.Topic},
		Remedy: hiddenOrHanging + Start{p.Topic, p.Partition, p.CurrentTxnStartOffset}.command(),
	}, true
}

// hiddenOrHanging goes before the command that ends a transaction. Brokers leave
// out the transactional ids that the user may not describe, so one that they do
// not list may be another program's, and well.
const hiddenOrHanging = "another program may have it under a transactional id that this user may not describe, until it is older than transaction.max.timeout.ms (15 minutes by default); if none has, end it: "

// settled is how long a producer must have been silent: between the answers of
// coordinators and partitions a transaction may begin or end.
const settled = time.Minute

// heldPartitions are the partitions of the cluster with an open transaction, but for
// those that cannot be asked for, which are missing.
func heldPartitions(ctx context.Context, admin *kadm.Client, missing *unasked) (kadm.TopicsSet, error) {
	stable, err := admin.ListCommittedOffsets(ctx)
	if err := missing.take(err); err != nil {
		return nil, fmt.Errorf("list the last stable offsets: %w", err)
	}
	ends, err := admin.ListEndOffsets(ctx)
	if err := missing.take(err); err != nil {
		return nil, fmt.Errorf("list the ends of topics: %w", err)
	}
	var set kadm.TopicsSet
	ends.Each(func(end kadm.ListedOffset) {
		if end.Err != nil && end.Partition >= 0 {
			missing.note(partitionsOf(end.Topic, []int32{end.Partition}), end.Err)
		}
		if low, ok := stable.Lookup(end.Topic, end.Partition); ok && low.Err == nil && end.Err == nil && low.Offset < end.Offset {
			set.Add(end.Topic, end.Partition)
		}
	})
	return set, nil
}
