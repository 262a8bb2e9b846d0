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

// partitions are numbers of partitions by topic.
type partitions map[string]map[int32]bool

func (p partitions) add(topic string, n int32) {
	if p[topic] == nil {
		p[topic] = make(map[int32]bool)
	}
	p[topic][n] = true
}

// without returns those that others does not have.
func (p partitions) without(others partitions) partitions {
	rest := make(partitions)
	for topic, numbers := range p {
		for n := range numbers {
			if !others[topic][n] {
				rest.add(topic, n)
			}
		}
	}
	return rest
}

// partitionsOf are those that the rounds go to.
func partitionsOf(rounds [][]placed) partitions {
	all := make(partitions)
	for _, round := range rounds {
		for _, p := range round {
			all.add(p.Record.Topic, p.Record.Partition)
		}
	}
	return all
}

// enlists reports whether the coordinator is to be told of a transaction's
// partitions at once: whether several brokers lead them. Each of these would tell it
// of its own when records come (KIP-890). But the coordinator takes one at a time,
// and a broker that has to wait asks again only after
// add.partitions.to.txn.retry.backoff.ms. For partitions that it knows, the
// coordinator answers at once.
//
// It is told only where each transaction has an epoch of its own. Otherwise a
// request that comes late would begin a transaction that nobody ends.
func (x *Transactions) enlists(all partitions) bool {
	if !x.epochs.differ.Load() {
		return false
	}
	leaders := make(map[int32]bool)
	for topic, numbers := range all {
		for n := range numbers {
			leader, _, err := x.k.client.PartitionLeader(topic, n)
			if err != nil || leader < 0 {
				return false // the client does not know it yet
			}
			leaders[leader] = true
		}
	}
	return len(leaders) > 1
}

// enlist tells the coordinator of those partitions of the open transaction that it
// was not told of, if it is to be told at all. First it waits, as brokers would,
// until the markers of the last transaction are written.
//
// This is help only, and so has no error. What does not work here is left to the
// brokers; the records tell what is wrong.
func (x *Transactions) enlist(ctx context.Context, all partitions) {
	rest := all.without(x.enlisted)
	if len(rest) == 0 || !x.enlists(all) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, enlistPatience)
	defer cancel()
	id, epoch, err := x.k.client.ProducerID(ctx)
	if err != nil {
		return
	}
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = x.id, id, epoch
	for topic, numbers := range rest {
		t := kmsg.NewAddPartitionsToTxnRequestTopic()
		t.Topic, t.Partitions = topic, slices.Sorted(maps.Keys(numbers))
		req.Topics = append(req.Topics, t)
	}
	retry := backoff.Series{Range: marked}
	for {
		resp, err := req.RequestWith(ctx, x.k.client)
		if err == nil && added(resp) {
			x.enlisted = all
			return
		}
		if err != nil || !concurrent(resp) || retry.Pause(ctx) != nil {
			return
		}
	}
}

// added reports whether the coordinator knows all partitions now.
func added(resp *kmsg.AddPartitionsToTxnResponse) bool {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return false
			}
		}
	}
	return true
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
