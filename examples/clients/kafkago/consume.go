// Package kafkago handles records once with segmentio/kafka-go.
package kafkago

import (
	"context"

	"github.com/segmentio/kafka-go"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
)

// Consume handles each record of the reader's topics once, until ctx ends. The
// reader must have a group, no CommitInterval, and the IsolationLevel
// ReadCommitted: by default it reads records of transactions that were aborted.
func Consume(ctx context.Context, reader *kafka.Reader, p *idempotency.Processor, handle func(context.Context, kafka.Message) error) error {
	for {
		r, err := reader.FetchMessage(ctx)
		if err != nil {
			return err
		}
		m := idempotency.Message{Key: idempotency.Key{Scope: reader.Config().GroupID}, Fingerprint: idempotency.FingerprintBytes(r.Value)}
		for _, h := range r.Headers {
			if h.Key == "id" {
				m.Key.ID = string(h.Value)
			}
		}
		if _, err := p.RunUntilDone(ctx, m, func(ctx context.Context) ([]byte, error) { return nil, handle(ctx, r) }); err != nil {
			return err
		}
		if err := reader.CommitMessages(ctx, r); err != nil {
			return err
		}
	}
}
