package sink

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
)

// enlistPatience bounds the wait for the markers of the last transaction, from the
// beginning of the next. Afterwards brokers wait for the markers, with the records in hand.
const enlistPatience = time.Second

// markedWait is the least wait between questions whether the markers are written, and
// markedShare the part of the time so far that a wait takes at least. Each question costs the
// coordinator work: a busy broker, asked every few milliseconds by many transactions, would
// write the markers later. So a wait for markers may be a quarter too long, and a second
// has about twenty-five questions.
const (
	markedWait  = time.Millisecond
	markedShare = 4
)

// enlist adds partitions to the open transaction at the coordinator, but for those already
// enlisted. First it waits for the markers of the last transaction. Without enlist each
// broker would add its own partitions when records come (KIP-890). But the coordinator takes
// a single request at a time, and a waiting broker asks again only after
// add.partitions.to.txn.retry.backoff.ms. For known partitions the coordinator answers at
// once.
//
// enlist does nothing unless each transaction has an epoch of its own. Otherwise a late
// request would begin a transaction without an end.
//
// enlist is help only, and has no error: after a failure the records meet the same trouble,
// and have an error.
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
	for began := time.Now(); ; {
		pause := max(markedWait, time.Since(began)/markedShare)
		switch err := broker.Enlist(ctx, x.k.client, x.id, id, epoch, topics); {
		case err == nil:
			x.enlisted.add(wanted)
			return
		case !errors.Is(err, kerr.ConcurrentTransactions) || backoff.Sleep(ctx, pause+rand.N(pause/4)) != nil:
			return
		}
	}
}

// byTopic returns the partitions' numbers by topic.
func (p partitions) byTopic() map[string][]int32 {
	topics := make(map[string][]int32)
	for one := range p {
		topics[one.topic] = append(topics[one.topic], one.number)
	}
	return topics
}
