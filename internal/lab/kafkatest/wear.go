package kafkatest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// LastEpoch is the last of a producer id. At the next claim, and with
// transaction.version 2 at the next end of a transaction, brokers give the
// transactional id another producer id.
const LastEpoch = 1<<15 - 2

// Claim gets the transactional id once more, fences the owner off, and returns
// producer id and epoch.
func (b *Broker) Claim(ctx context.Context, t testing.TB, id string) (producer int64, epoch int16, err error) {
	t.Helper()
	client, err := b.newClient()
	if err != nil {
		return 0, 0, err
	}
	defer client.Close()
	return claim(ctx, client, id)
}

// Wear claims the transactional id until the producer id has the epoch.
// Meanwhile, no other use is allowed. Each claim takes a millisecond or two.
func (b *Broker) Wear(t testing.TB, id string, until int16) {
	t.Helper()
	client := b.Client(t)
	defer client.Close()
	for epoch := int16(-1); epoch < until; {
		testserver.Do(t, "claim "+id, func(ctx context.Context) (err error) {
			for range 1000 {
				if epoch >= until || err != nil {
					break
				}
				var now int16
				switch _, now, err = claim(ctx, client, id); {
				case err == nil:
					epoch = now
				case errors.Is(err, kerr.ConcurrentTransactions):
					err = backoff.Sleep(ctx, 10*time.Millisecond)
				}
			}
			return err
		})
	}
}

func claim(ctx context.Context, client kmsg.Requestor, id string) (producer int64, epoch int16, err error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, 10_000
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return 0, 0, err
	}
	return resp.ProducerID, resp.ProducerEpoch, kerr.ErrorForCode(resp.ErrorCode)
}
