package consumer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/deadletter"
	"github.com/cdc-outbox/cdc-outbox/internal/base/hook"
)

// DeadLetterTopic returns a function that writes dead letters to the topic, for
// idempotency.Options. A dead letter has the original key, value and headers,
// then package deadletter's; the timestamp is now, so the topic's retention
// counts from here.
//
// The function returns nil when all in-sync replicas have the dead letter. It
// blocks until then, until the context ends, or for half a minute. An
// interrupted dead letter may have been written, or may still be; the next
// attempt writes it again. The client remains the caller's; it must require all
// acks, and must not be closed before the consumer has stopped. A topic that
// does not exist, may not be seen, or is compacted is an error; brokers that do
// not answer within five seconds are not. A compacted topic refuses records
// without a key, and forgets all but the last of each key.
//
// The topic must take records 2 KiB larger, for the headers, than the topics
// consumed (max.message.bytes): otherwise the largest wait, and the error says
// for how many bytes. A lower limit of the client (kgo.ProducerBatchMaxBytes)
// is no obstacle, unless the client also consumes or has a transactional id: a
// second client, for the record alone, writes it.
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
		if err := writeDeadLetter(ctx, client, deadLetter(topic, r, letter)); err != nil {
			return fmt.Errorf("write dead letter to topic %s: %w", topic, err)
		}
		return nil
	}, nil
}

// writeDeadLetter gets past the client's own obstacles.
func writeDeadLetter(ctx context.Context, client *kgo.Client, r *kgo.Record) error {
	err := produce(ctx, client, r)
	switch {
	case errors.Is(err, kerr.UnknownTopicID):
		// The topic was deleted and created again: the client refuses until the old
		// topic is forgotten.
		client.PurgeTopicsFromProducing(r.Topic)
		err = produce(ctx, client, r)
	case errors.Is(err, kerr.MessageTooLarge) && beyond(client, r):
		err = produceLarge(ctx, client, r)
	}
	return remedied(err, r)
}

// beyond reports whether the client's own limit is below the record, and a
// second client, without a group, can be made of the options.
func beyond(client *kgo.Client, r *kgo.Record) bool {
	limit, _ := client.OptValue(kgo.ProducerBatchMaxBytes).(int32)
	group, _ := client.OptValue(kgo.ConsumerGroup).(string)
	id, _ := client.OptValue(kgo.TransactionalID).(string)
	return batchSize(r) > int64(limit) && group == "" && len(client.GetConsumeTopics()) == 0 && id == ""
}

// batchSize is at least a record's size in a separate batch.
func batchSize(r *kgo.Record) int64 {
	const overhead = 256 // the batch's and the record's, lengths included
	size := overhead + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += len(h.Key) + len(h.Value) + 2*binary.MaxVarintLen32
	}
	return int64(size)
}

// produceLarge writes the record by a client without the given client's limit.
func produceLarge(ctx context.Context, client *kgo.Client, r *kgo.Record) error {
	size := batchSize(r)
	if size > math.MaxInt32/2 {
		return kerr.MessageTooLarge
	}
	large, err := kgo.NewClient(append(slices.Clip(client.Opts()),
		kgo.ProducerBatchMaxBytes(int32(size)), kgo.BrokerMaxWriteBytes(int32(size)+math.MaxInt16))...)
	if err != nil {
		return fmt.Errorf("make a client for a record of %d bytes: %w", size, err)
	}
	defer large.Close()
	return produce(ctx, large, r)
}

// remedied adds the remedy for the topic's refusal.
func remedied(err error, r *kgo.Record) error {
	switch {
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return fmt.Errorf("%w: let it take records of %d bytes (the topic's max.message.bytes; "+
			"kgo.ProducerBatchMaxBytes of a client that consumes, too)", err, batchSize(r))
	case errors.Is(err, kerr.InvalidRecord) && r.Key == nil:
		return fmt.Errorf("%w: the record has no key, and a compacted topic takes none such: set the topic's cleanup.policy to delete", err)
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("%w: create the topic", err)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Errorf("%w: allow the consumer to write to the topic", err)
	}
	return err
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
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return nil //nolint:nilerr // nobody answers: the consumer waits for brokers, and so do dead letters
	}
	switch err := topics[topic].Err; {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("it does not exist: create it: %w", err)
	case fatal(err):
		return err
	}
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil //nolint:nilerr // it may be forbidden; the first dead letter tells
	}
	for _, c := range configs {
		for _, entry := range c.Configs {
			if entry.Key == "cleanup.policy" && strings.Contains(entry.MaybeValue(), "compact") {
				return fmt.Errorf("it is compacted: it refuses dead letters without a key, and forgets those of a key but for the last: "+
					"set its cleanup.policy to delete (it is %q)", entry.MaybeValue())
			}
		}
	}
	return nil
}

// produce is ProduceSync ending with the context: the client keeps a record
// sent to a broker until the outcome is known.
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
