package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
)

// Save repeats a refused checkpoint for a few seconds, and then returns the
// brokers' answer. If a broker may have taken the checkpoint, the client goes on
// until the outcome is known; a later save waits.
func (k *kafka) Save(ctx context.Context, cp checkpoint.Checkpoint) error {
	value, err := encode(cp)
	if err != nil {
		return err
	}
	if err := k.write(ctx, value); err != nil {
		return fmt.Errorf("save checkpoint to topic %s: %w", k.topic, err)
	}
	return nil
}

func (k *kafka) Close() {
	if k.writer != k.client {
		k.writer.Close()
	}
	k.client.Close()
}

// write makes a record under the key durable; nil forgets the checkpoint. A writer
// refused a producer id can never write (see broker.Refused), and is replaced.
func (k *kafka) write(ctx context.Context, value []byte) error {
	retry := backoff.Series{Range: renewWaits}
	for refused := 1; ; refused++ {
		err := k.produce(ctx, value)
		if err == nil {
			return nil
		}
		refusal := broker.Refused(ctx, k.writer)
		if refusal == nil {
			return k.classify(err, "Write")
		}
		if err := k.renew(); err != nil {
			return err
		}
		if refused == broker.Refusals || retry.Pause(ctx) != nil {
			return k.unnumbered(refusal)
		}
	}
}

// renewWaits are the waits between two writers, after brokers refused the
// first.
var renewWaits = backoff.Range{First: 100 * time.Millisecond, Longest: time.Second}

// renew replaces the writer. Nothing is in flight: the refusal failed all records
// of the writer.
func (k *kafka) renew() error {
	fresh, err := broker.Connect(k.opts...)
	if err != nil {
		return fmt.Errorf("renew the Kafka client: %w", err)
	}
	if k.writer != k.client {
		k.writer.Close()
	}
	k.writer = fresh
	return nil
}

// unnumbered is the error after brokers refused several writers a producer id.
func (k *kafka) unnumbered(refusal *kerr.Error) error {
	err := fmt.Errorf("get a producer id: %w", refusal)
	if refusal == kerr.ClusterAuthorizationFailed {
		return failure.Configf(k.tools.Allow("IdempotentWrite", ""), "%w", err)
	}
	return err
}

// produce returns once the broker has acknowledged the record, or ctx has ended.
func (k *kafka) produce(ctx context.Context, value []byte) error {
	k.link.reset()
	for {
		err := k.produceOnce(ctx, value)
		// If the record of an abandoned save still waits in the client, all
		// records behind fail with the error of its context.
		if ctx.Err() == nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
			continue
		}
		return k.link.explain(err)
	}
}

// refusalPoll is the time between two questions of a waiting save for a refused
// producer id. A client without an id fails its buffered records, but may miss the
// first record of a topic just learned of.
const refusalPoll = time.Second

func (k *kafka) produceOnce(ctx context.Context, value []byte) error {
	rec := k.record(value)
	acked := make(chan error, 1)
	k.writer.Produce(ctx, rec, func(_ *kgo.Record, err error) { acked <- err })
	poll := time.NewTicker(refusalPoll)
	defer poll.Stop()
	for {
		select {
		case err := <-acked:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-poll.C:
			asking, cancel := context.WithTimeout(ctx, refusalPoll)
			refusal := broker.Refused(asking, k.writer)
			cancel()
			if refusal != nil {
				return refusal
			}
		}
	}
}
