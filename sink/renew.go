package sink

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/producerid"
)

// renew replaces the client if a broker refused it a producer id, because such
// a client can never write (see package producerid). It reports whether it did.
// It is called when the client has reported on every record of the attempt, so
// nothing is in flight. The new client knows no topic yet: what was not written
// must be placed again, see place.
//
// An error that only an operator can fix ends the delivery when it has come a
// few times in a row. After every other error it asks again, for as long as ctx
// lives.
func (k *Kafka) renew(ctx context.Context) (renewed bool, err error) {
	refusal := producerid.Refused(ctx, k.client)
	if refusal == nil || judge(refusal) == lossy {
		k.numbered()
		return false, nil
	}
	refused := fmt.Errorf("get a producer id: %w", refusal)
	k.refused++
	if judge(refusal) == misconfigured && k.refused >= producerid.Refusals {
		return false, failure.Configf(writeRemedy(refusal, k.cfg, ""), "%w", refused)
	}
	k.complain("Kafka gave the client no producer id, retrying with a new one", zap.Error(refused))
	client, err := kgo.NewClient(k.clientOpts...)
	if err != nil {
		return false, fmt.Errorf("renew the Kafka client: %w", err)
	}
	k.client.Close()
	k.client = client
	k.partitions.reset()
	return true, k.refusedWaits.Pause(ctx)
}

// numbered notes that the client has a producer id.
func (k *Kafka) numbered() {
	k.refused = 0
	k.refusedWaits.Reset()
}
