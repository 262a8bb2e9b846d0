package sink

import (
	"context"
	"fmt"
	"math"
)

// lastEpoch is the last epoch of a producer id. A claim at that epoch gets
// another id.
const lastEpoch = math.MaxInt16 - 1

// renumber claims another producer id when the present id is used up. The last
// epoch is never used for a transaction. With transaction.version 2 the end of
// such a transaction would bring another id, too. But Kafka 4.1 does not keep
// the new id in its log (KAFKA-20310). A coordinator taking over just then lets
// the client go on with epoch 32767, and can neither end the transaction nor ever
// grant another claim.
//
// The first claim of the new id has epoch 0. Any other epoch means that somebody
// else claimed the transactional id in the meantime, and may have written.
func (x *Transactions) renumber(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, claimPatience)
	defer cancel()
	id, epoch, err := x.k.client.ProducerID(ctx)
	if err != nil {
		return unsettled(x.unclaimed(err))
	}
	x.epochs.begin(epoch)
	if epoch < lastEpoch {
		return nil
	}
	if err := x.k.replaceClient(); err != nil {
		return err
	}
	next, first, err := x.k.client.ProducerID(ctx)
	if err != nil {
		return unsettled(x.unclaimed(err))
	}
	if next == id || first != 0 {
		return fmt.Errorf("producer id %d is used up, and the next claim got %d/%d, not the first one of another id: %w", id, next, first, ErrFenced)
	}
	return nil
}
