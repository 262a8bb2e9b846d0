package sink

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
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
	req := enlistment(wanted)
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = x.id, id, epoch
	retry := backoff.Series{Range: marked}
	for {
		resp, err := req.RequestWith(ctx, x.k.client)
		if err != nil {
			return
		}
		switch refusedWith(resp) {
		case 0:
			x.enlisted.add(wanted)
			return
		case kerr.ConcurrentTransactions.Code:
			if retry.Pause(ctx) != nil {
				return
			}
		default:
			return
		}
	}
}

// enlistment is the request for the partitions.
func enlistment(wanted partitions) *kmsg.AddPartitionsToTxnRequest {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	topics := make(map[string]int)
	for p := range wanted {
		i, ok := topics[p.topic]
		if !ok {
			i = len(req.Topics)
			topics[p.topic] = i
			t := kmsg.NewAddPartitionsToTxnRequestTopic()
			t.Topic = p.topic
			req.Topics = append(req.Topics, t)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p.number)
	}
	return req
}

// refusedWith is the code of an error in the answer, or 0. While the coordinator is busy
// with the last transaction, it says so of all partitions alike.
func refusedWith(resp *kmsg.AddPartitionsToTxnResponse) int16 {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return p.ErrorCode
			}
		}
	}
	return 0
}
