package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
)

// Reader reads a partition through changes of the leader, for as long as
// opts.Patience allows. Of opts, Patience, Note and Allow count. A Reader is for a
// single goroutine.
type Reader struct {
	client *kgo.Client
	topic  string
	log    *kafkalog.Partition
	opts   ReadOptions
}

// NewReader takes an opened partition. The client stays the caller's.
func NewReader(client *kgo.Client, log *kafkalog.Partition, topic string, opts ReadOptions) *Reader {
	var once sync.Once // a transaction may be open at each fetch
	note := opts.Note
	opts.Note = func(line string) { once.Do(func() { note(line) }) }
	return &Reader{client: client, topic: topic, log: log, opts: opts}
}

// Bounds are those of the partition when it was opened last.
func (r *Reader) Bounds() (start, end int64) { return r.log.Bounds() }

// Fetch returns some records at or after from, and the offset to go on from, as
// kafkalog.Log.Read does.
func (r *Reader) Fetch(ctx context.Context, from int64) (records []*kgo.Record, next int64, err error) {
	err = r.opts.persist(ctx, r.topic, func() (progress bool, err error) {
		records, next, err = r.log.Read(ctx, from)
		if err != nil {
			opened, again := kafkalog.Open(ctx, r.client, r.topic, r.log.Number()) // perhaps there is another leader
			if again == nil {
				r.log = opened[0]
			}
		}
		return false, err
	})
	return records, next, err
}

// Walk calls take with the records in [from, end), in order, fetch by fetch, with
// the offset to go on from. Walk returns the offset behind the last fetch.
func (r *Reader) Walk(ctx context.Context, from, end int64, take func(records []*kgo.Record, next int64) error) (int64, error) {
	for from < end {
		records, next, err := r.Fetch(ctx, from)
		if err != nil {
			return from, err
		}
		if next == from {
			next = end // nothing follows
		}
		for len(records) > 0 && records[len(records)-1].Offset >= end {
			records = records[:len(records)-1]
		}
		if err := take(records, min(next, end)); err != nil {
			return from, err
		}
		from = min(next, end)
	}
	return from, nil
}

// Open opens all partitions of a topic, none of a topic that does not exist.
func Open(ctx context.Context, client *kgo.Client, topic string, opts ReadOptions) (logs []*kafkalog.Partition, err error) {
	err = opts.persist(ctx, topic, func() (progress bool, err error) {
		described, err := kafkalog.Describe(ctx, client, topic)
		if err == nil {
			err = described.Err
		}
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			logs = nil
			return false, nil
		}
		if err != nil {
			return false, err
		}
		numbers := slices.Sorted(maps.Keys(described.Leaders))
		logs, err = kafkalog.Open(ctx, client, topic, numbers...)
		return false, err
	})
	return logs, err
}

// Since is kafkalog.Since for the partitions of a topic.
func Since(ctx context.Context, logs []*kafkalog.Partition, topic string, at time.Time, opts ReadOptions) (starts map[int32]int64, err error) {
	err = opts.persist(ctx, topic, func() (progress bool, err error) {
		starts, err = kafkalog.Since(ctx, logs, at)
		return false, err
	})
	return starts, err
}

// persist repeats what fails for a reason that may pass, until it has made no
// progress for opts.Patience.
func (o ReadOptions) persist(ctx context.Context, topic string, try func() (progress bool, err error)) error {
	waits := backoff.Series{Range: backoff.Range{First: 100 * time.Millisecond, Longest: 5 * time.Second}}
	since := time.Now()
	for told := false; ; {
		progress, err := try()
		_, settled := errors.AsType[*failure.Error](err)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, kerr.OffsetOutOfRange):
			return failure.Configf("repeat the command", "records of topic %q were deleted while they were read: %w", topic, err)
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			return failure.Configf(o.Allow(topic), "the broker does not allow to read topic %q: %w", topic, err)
		case settled, !errors.Is(err, kafkalog.ErrOpenTransaction) && !broker.MayPass(err):
			return fmt.Errorf("read topic %q: %w", topic, err)
		case progress:
			since = time.Now()
			waits.Reset()
		case time.Since(since) > o.Patience:
			return fmt.Errorf("read topic %q: for %s: %w", topic, o.Patience, err)
		}
		if !told {
			o.Note(fmt.Sprintf("topic %q cannot be read now: %v", topic, err))
			told = true
		}
		if err := waits.Pause(ctx); err != nil {
			return err
		}
	}
}
