package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// The headers that a dead letter has after the original ones. Values are text.
const (
	HeaderReason    = "cdc-dlq-reason"    // a Reason
	HeaderError     = "cdc-dlq-error"     // what went wrong, for people
	HeaderScope     = "cdc-dlq-scope"     // the consumer that gave the record up
	HeaderAttempts  = "cdc-dlq-attempts"  // how often the handler was called; 0 if never
	HeaderTopic     = "cdc-dlq-topic"     // where the record was read
	HeaderPartition = "cdc-dlq-partition" // likewise
	HeaderOffset    = "cdc-dlq-offset"    // likewise
	HeaderTimestamp = "cdc-dlq-timestamp" // the record's, RFC 3339
)

// The reasons of dead letters.
const (
	ReasonBadKey   = "bad_key"  // no usable id
	ReasonMismatch = "mismatch" // the id is known with another payload
	ReasonFailed   = "failed"   // the handler failed for good, or too often
)

// DeadLetterTopic returns a function that writes dead letters to the topic. It
// is for Guard.DeadLetter and for the Runner's hook alike. A dead letter has
// the original key, value and headers, then the headers HeaderReason and so on;
// its timestamp is now, so that the topic's retention counts from here.
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
func DeadLetterTopic(client *kgo.Client, topic string) (DeadLetterFunc, error) {
	return deadLetterTopic(client, topic, deadLetterTimeout)
}

// deadLetterTimeout is long enough for a broker's failover. The client itself
// would go on for ever in silence, and would hold up a worker.
const deadLetterTimeout = 30 * time.Second

func deadLetterTopic(client *kgo.Client, topic string, timeout time.Duration) (DeadLetterFunc, error) {
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
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if err := produce(ctx, client, deadLetter(topic, r, letter)); err != nil {
			return fmt.Errorf("write dead letter to topic %s: %w", topic, err)
		}
		return nil
	}, nil
}

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
	text := func(key, value string) kgo.RecordHeader {
		return kgo.RecordHeader{Key: key, Value: []byte(value)}
	}
	explanation := ""
	if letter.Reason != nil {
		explanation = letter.Reason.Error()
		explanation = strings.ToValidUTF8(explanation[:min(len(explanation), storage.MaxReasonBytes)], "")
	}
	return &kgo.Record{
		Topic:     topic,
		Key:       r.Key,
		Value:     r.Value,
		Timestamp: time.Now(),
		Headers: append(slices.Clip(r.Headers),
			text(HeaderReason, reasonOf(letter.Reason)),
			text(HeaderError, explanation),
			text(HeaderScope, letter.Message.Key.Scope),
			text(HeaderAttempts, strconv.Itoa(letter.Attempts)),
			text(HeaderTopic, r.Topic),
			text(HeaderPartition, strconv.FormatInt(int64(r.Partition), 10)),
			text(HeaderOffset, strconv.FormatInt(r.Offset, 10)),
			text(HeaderTimestamp, r.Timestamp.UTC().Format(time.RFC3339Nano)),
		),
	}
}

func reasonOf(err error) string {
	switch {
	case errors.Is(err, storage.ErrBadKey):
		return ReasonBadKey
	case errors.Is(err, storage.ErrMismatch):
		return ReasonMismatch
	default:
		return ReasonFailed
	}
}
