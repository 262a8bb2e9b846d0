// Package confluent handles records once with confluent-kafka-go.
package confluent

import (
	"cmp"
	"context"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
)

// Consume handles each record of the consumer's topics once, until ctx ends. The
// consumer must have enable.auto.commit=false, and max.poll.interval.ms beyond
// the longest wait: the message's retries in a row, or an outage of the store.
func Consume(ctx context.Context, c *kafka.Consumer, scope string, p *idempotency.Processor, handle func(context.Context, *kafka.Message) error) (err error) {
	for err == nil && ctx.Err() == nil {
		r, nothing := c.ReadMessage(time.Second)
		if nothing != nil { // nothing came, or what the client gets over by itself
			continue
		}
		m := idempotency.Message{Key: idempotency.Key{Scope: scope}, Fingerprint: idempotency.FingerprintBytes(r.Value)}
		for _, h := range r.Headers {
			if h.Key == "id" {
				m.Key.ID = string(h.Value)
			}
		}
		_, err = p.RunUntilDone(ctx, m, func(ctx context.Context) ([]byte, error) { return nil, handle(ctx, r) })
		if err == nil {
			_, err = c.CommitMessage(r)
		}
	}
	return cmp.Or(err, context.Cause(ctx))
}
