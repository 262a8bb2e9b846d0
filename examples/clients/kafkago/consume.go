// Package kafkago handles records once with segmentio/kafka-go.
package kafkago

import (
	"context"
	"slices"

	"github.com/segmentio/kafka-go"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
)

// Consume handles each event of the reader's topics once, until ctx ends. The
// reader must have a group and no CommitInterval.
//
// The client returns aborted records, also with the IsolationLevel
// ReadCommitted, and the marker at the end of each transaction. The Processor
// handles an event at its first record, be that aborted or not. A marker is no
// event: it has no headers, as all records of the connector do.
func Consume(ctx context.Context, reader *kafka.Reader, p *idempotency.Processor, handle func(context.Context, kafka.Message) error) error {
	for {
		r, err := reader.FetchMessage(ctx)
		if err != nil {
			return err
		}
		m := idempotency.Message{Key: idempotency.Key{Scope: reader.Config().GroupID}, Fingerprint: idempotency.FingerprintBytes(r.Value)}
		if id := slices.IndexFunc(r.Headers, func(h kafka.Header) bool { return h.Key == "id" }); id >= 0 {
			m.Key.ID = string(r.Headers[id].Value)
		}
		if len(r.Headers) > 0 { // a marker is skipped, and its offset committed
			if _, err := p.RunUntilDone(ctx, m, func(ctx context.Context) ([]byte, error) { return nil, handle(ctx, r) }); err != nil {
				return err
			}
		}
		if err := reader.CommitMessages(ctx, r); err != nil {
			return err
		}
	}
}
