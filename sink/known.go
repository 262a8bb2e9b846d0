package sink

import (
	"context"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// knownPatience bounds the wait for the client to know a topic's partitions, a matter
// of microseconds.
const knownPatience = time.Second

// knownWaits are the waits between two looks.
var knownWaits = backoff.Range{First: time.Millisecond, Longest: 4 * time.Millisecond}

// awaitKnown waits until the client knows the partitions of the round. The client
// may write to a new topic a moment earlier (franz-go 1.22, storePartitionsUpdate).
// The end of a transaction within the moment would not set the partition's sequence
// number back, and brokers would refuse the first record of the next transaction.
//
// awaitKnown is help only, and has no error: such a refusal loses nothing, but costs
// a new claim. A partition that has lost its leader by now is known too, and is not
// waited for long.
func (x *Transactions) awaitKnown(ctx context.Context, round []placed) {
	ctx, cancel := context.WithTimeout(ctx, knownPatience)
	defer cancel()
	retry := backoff.Series{Range: knownWaits}
	for _, p := range round {
		for {
			leader, _, err := x.k.client.PartitionLeader(p.Record.Topic, p.Record.Partition)
			if leader >= 0 || err != nil {
				break
			}
			if retry.Pause(ctx) != nil {
				return
			}
		}
	}
}
