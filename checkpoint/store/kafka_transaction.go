package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
)

// openPatience is how long a load waits for the end of transactions: longer than
// the transactions of a working connector. unheldPatience is for the transaction of a
// connector without the slot, likely dead: only an end under way is worth a wait.
// openPoll is the time between two looks.
const (
	openPatience   = 2 * time.Second
	unheldPatience = 200 * time.Millisecond
	openPoll       = 20 * time.Millisecond
)

// LoadUnheld loads as the store does, for a caller beside a free slot. The next holder ends a
// transaction still open then; LoadUnheld does not wait for brokers to do so.
func LoadUnheld(ctx context.Context, s checkpoint.Store) (cp checkpoint.Checkpoint, ok bool, err error) {
	if k, isKafka := s.(*kafka); isKafka {
		return k.load(ctx, unheldPatience)
	}
	return s.Load(ctx)
}

// LastWritten returns the last checkpoint in Kafka under the store's key, also of a transaction
// without a commit; ok is false without one.
func LastWritten(ctx context.Context, s checkpoint.Store) (cp checkpoint.Checkpoint, ok bool, err error) {
	k, isKafka := s.(*kafka)
	if !isKafka {
		return cp, false, nil
	}
	f, err := await.Answer(ctx, func() (f found, err error) {
		written, err := k.lastIn(ctx, k.topic, func(r *kgo.Record) bool { return string(r.Key) == k.key })
		if err != nil || len(written) == 0 || written[0].Value == nil {
			return f, err
		}
		f.Checkpoint, err = decode(written[0].Value, "the last record")
		f.ok = err == nil
		return f, err
	})
	if err != nil {
		err = fmt.Errorf("checkpoint topic %s: %w", k.topic, k.classify(err, "Read"))
	}
	return f.Checkpoint, f.ok, err
}

// settled repeats a read of a log until no transaction is open before the end, the
// high watermark at the opening. A read up to the last stable offset would miss a
// checkpoint behind the first record of another connector's transaction.
func settled(ctx context.Context, patience time.Duration, read func() error) error {
	ends := time.Now().Add(patience)
	for asked := 1; ; asked++ {
		err := read()
		if !errors.Is(err, kafkalog.ErrOpenTransaction) || asked >= leastAsked && time.Now().After(ends) {
			return err
		}
		if backoff.Sleep(ctx, openPoll) != nil {
			return err
		}
	}
}

// Marker makes records of checkpoints, to be written in transactions.
type Marker interface {
	// Mark returns the record that Save would write.
	Mark(cp checkpoint.Checkpoint) (*kgo.Record, error)
}

// Mark implements Marker.
func (k *kafka) Mark(cp checkpoint.Checkpoint) (*kgo.Record, error) {
	value, err := encode(cp)
	if err != nil {
		return nil, err
	}
	return k.record(value), nil
}

func (k *kafka) record(value []byte) *kgo.Record {
	return &kgo.Record{Topic: k.topic, Partition: 0, Key: []byte(k.key), Value: value}
}
