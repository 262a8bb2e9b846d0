package sink

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// enlistPatience bounds the wait for the markers of the last transaction. After
// it the brokers wait for them, with the records in hand.
const enlistPatience = time.Second

// marked is how often the coordinator is asked whether these markers are written.
var marked = backoff.Range{First: time.Millisecond, Longest: 4 * time.Millisecond}

// enlist tells the coordinator of all partitions of the transaction at once, if
// several brokers lead them. Each of these would tell it of its own when records
// come (KIP-890). But the coordinator takes one at a time, and a broker that has
// to wait asks again only after add.partitions.to.txn.retry.backoff.ms. For
// partitions that it knows, the coordinator answers at once.
//
// It does so only where each transaction has an epoch of its own. Otherwise a
// request that comes late would begin a transaction that nobody ends.
//
// This is help only, and so has no error. What does not work here is left to the
// brokers; the records tell what is wrong.
func (x *Transactions) enlist(ctx context.Context, rounds [][]placed) {
	if !x.epochs.differ.Load() {
		return
	}
	req, leaders := x.enlistment(rounds)
	if leaders < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, enlistPatience)
	defer cancel()
	id, epoch, err := x.k.client.ProducerID(ctx)
	if err != nil {
		return
	}
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = x.id, id, epoch
	retry := backoff.Series{Range: marked}
	for {
		resp, err := req.RequestWith(ctx, x.k.client)
		if err != nil || !concurrent(resp) || retry.Pause(ctx) != nil {
			return
		}
	}
}

// enlistment is the request for the partitions of the rounds, and how many brokers
// lead them. That is 0 where the client does not know the leader of each yet.
func (x *Transactions) enlistment(rounds [][]placed) (req *kmsg.AddPartitionsToTxnRequest, leaders int) {
	partitions := make(map[string]map[int32]bool)
	brokers := make(map[int32]bool)
	for _, round := range rounds {
		for _, p := range round {
			topic, n := p.Record.Topic, p.Record.Partition
			if partitions[topic][n] {
				continue
			}
			broker, _, err := x.k.client.PartitionLeader(topic, n)
			if err != nil || broker < 0 {
				return nil, 0
			}
			brokers[broker] = true
			if partitions[topic] == nil {
				partitions[topic] = make(map[int32]bool)
			}
			partitions[topic][n] = true
		}
	}
	req = kmsg.NewPtrAddPartitionsToTxnRequest()
	for topic, numbers := range partitions {
		t := kmsg.NewAddPartitionsToTxnRequestTopic()
		t.Topic, t.Partitions = topic, slices.Sorted(maps.Keys(numbers))
		req.Topics = append(req.Topics, t)
	}
	return req, len(brokers)
}

// concurrent reports whether the coordinator is still busy with the last
// transaction. It says so of all partitions alike.
func concurrent(resp *kmsg.AddPartitionsToTxnResponse) bool {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			return p.ErrorCode == kerr.ConcurrentTransactions.Code
		}
	}
	return false
}
