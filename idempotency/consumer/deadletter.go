package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/deadletter"
	"github.com/cdc-outbox/cdc-outbox/internal/base/hook"
)

// DeadLetterTopic returns a function that writes dead letters to the topic. It
// is for idempotency.Options. A dead letter has the original key, value and
// headers, then those of package deadletter; its timestamp is now, so that the topic's retention counts from here.
//
// The function returns nil when all in-sync replicas have the dead letter. It
// blocks until then, until its context ends, or for half a minute. An
// interrupted dead letter may have been written, or may still be; the next
// attempt writes it again. The client remains the caller's; it must require all
// acks, and it must not be closed before the consumer has stopped. A topic that
// does not exist, or may not be seen, is an error; brokers that do not answer
// within five seconds are not. That the topic and the client take records that
// are 2 KiB larger, for the headers, than those of the topics consumed
// (max.message.bytes, kgo.ProducerBatchMaxBytes) is up to the operator:
// otherwise the largest wait.
func DeadLetterTopic(client *kgo.Client, topic string) (func(ctx context.Context, letter idempotency.DeadLetter) error, error) {
	if topic == "" {
		return nil, errors.New("the dead-letter topic has no name")
	}
	if acks, ok := client.OptValue(kgo.RequiredAcks).(kgo.Acks); !ok || acks != kgo.AllISRAcks() {
		return nil, errors.New("the dead letters' client must require acks from all in-sync replicas (kgo.AllISRAcks, the default)")
	}
	if err := checkDeadLetterTopic(client, topic); err != nil {
		return nil, fmt.Errorf("look for the dead-letter topic %s: %w", topic, err)
	}
	return func(ctx context.Context, letter idempotency.DeadLetter) error {
		r := RecordFrom(ctx)
		if r == nil {
			return errors.New("write dead letter: the context holds no record")
		}
		ctx, cancel := context.WithTimeout(ctx, hook.Interval(ctx, deadLetterTimeout))
		defer cancel()
		if err := produce(ctx, client, deadLetter(topic, r, letter)); err != nil {
			return fmt.Errorf("write dead letter to topic %s: %w", topic, err)
		}
		return nil
	}, nil
}

// deadLetterTimeout is long enough for a broker's failover. The client itself
// would go on for ever in silence, and would hold up a worker.
const deadLetterTimeout = 30 * time.Second

// checkDeadLetterTopic returns an error if the topic is known to be missing, and
// would not be created by the first dead letter.
func checkDeadLetterTopic(client *kgo.Client, topic string) error {
	if created, _ := client.OptValue(kgo.AllowAutoTopicCreation).(bool); created {
		return nil
	}
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	topics, err := kadm.NewClient(client).ListTopics(ctx, topic)
	if err != nil {
		return nil //nolint:nilerr // nobody answers: the consumer waits for brokers, and so do dead letters
	}
	switch err := topics[topic].Err; {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("it does not exist: create it: %w", err)
	case fatal(err):
		return err
	}
	return nil
}

// produce is ProduceSync that ends with its context: the client keeps a record
// that a broker may have, until it knows.
func produce(ctx context.Context, client *kgo.Client, r *kgo.Record) error {
	acked := make(chan error, 1)
	client.Produce(ctx, r, func(_ *kgo.Record, err error) { acked <- err })
	select {
	case err := <-acked:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func deadLetter(topic string, r *kgo.Record, letter idempotency.DeadLetter) *kgo.Record {
	headers := slices.Clip(r.Headers)
	for _, h := range deadletter.Headers(letter, deadletter.Origin{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp,
	}) {
		headers = append(headers, kgo.RecordHeader{Key: h.Key, Value: []byte(h.Value)})
	}
	return &kgo.Record{Topic: topic, Key: r.Key, Value: r.Value, Timestamp: time.Now(), Headers: headers}
}
