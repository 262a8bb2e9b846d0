package sink

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
)

// enlistPatience bounds the wait for the markers of the last transaction, from the
// beginning of the next. After it the brokers wait for them, with the records in hand.
const enlistPatience = time.Second

// marked is how often the coordinator is asked whether these markers are written.
var marked = backoff.Range{First: time.Millisecond, Longest: 4 * time.Millisecond}

// enlist tells the coordinator of these partitions of the open transaction, but for
// those that it was told of. First it waits until the markers of the last transaction
// are written. Each broker would tell it of its own partitions when records come
// (KIP-890). But the coordinator takes one at a time, and a broker that has to wait
// asks again only after add.partitions.to.txn.retry.backoff.ms. For partitions that it
// knows, the coordinator answers at once.
//
// It does so only where each transaction has an epoch of its own. Otherwise a
// request that comes late would begin a transaction that nobody ends.
//
// This is help only, and so has no error. Failures here are left to the
// brokers; the records tell what is wrong.
func (x *Transactions) enlist(ctx context.Context, wanted partitions) {
	wanted = wanted.without(x.enlisted)
	if len(wanted) == 0 || !x.epochs.differ.Load() {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, x.enlistBy)
	defer cancel()
	id, epoch, err := x.k.client.ProducerID(ctx)
	if err != nil {
		return
	}
	topics := wanted.byTopic()
	retry := backoff.Series{Range: marked}
	for {
		switch err := broker.Enlist(ctx, x.k.client, x.id, id, epoch, topics); {
		case err == nil:
			x.enlisted.add(wanted)
			return
		case !errors.Is(err, kerr.ConcurrentTransactions) || retry.Pause(ctx) != nil:
			return
		}
	}
}

// byTopic are the numbers of partitions.
func (p partitions) byTopic() map[string][]int32 {
	topics := make(map[string][]int32)
	for one := range p {
		topics[one.topic] = append(topics[one.topic], one.number)
	}
	return topics
}
