package sink

import (
	"context"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// bookPatience bounds the wait for the client to book a topic, a matter of microseconds.
const bookPatience = time.Second

// booked waits until the client has the partitions of the round in its books.
// The client may write to a new topic a moment earlier (franz-go 1.22,
// storePartitionsUpdate). The end of a transaction within the moment would not
// set the partition's sequence number back, and brokers would refuse the first
// record of the next transaction.
//
// booked is help only, and has no error: such a refusal loses nothing, but costs
// a new claim. A partition that has lost its leader by now is in the books too,
// and is not waited for long.
func (x *Transactions) booked(ctx context.Context, round []placed) {
	ctx, cancel := context.WithTimeout(ctx, bookPatience)
	defer cancel()
	retry := backoff.Series{Range: marked}
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
