package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
	"github.com/cdc-outbox/cdc-outbox/transform"
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

// Bounds implements kafkalog.Log: those of the partition when it was opened last.
func (r *Reader) Bounds() (start, end int64) { return r.log.Bounds() }

// Read implements kafkalog.Log.
func (r *Reader) Read(ctx context.Context, from int64) (records []*kgo.Record, next int64, err error) {
	err = r.opts.persist(ctx, r.topic, func() (err error) {
		records, next, err = r.log.Read(ctx, from)
		if err == nil && next == from {
			err = r.silent(ctx, from)
		}
		if err != nil {
			opened, again := kafkalog.Open(ctx, r.client, r.topic, r.log.Number()) // perhaps there is another leader
			if again == nil {
				r.log = opened[0]
			}
		}
		return err
	})
	return records, next, err
}

// errSilent is the error of an answer without the records there are: a broker that
// keeps them in remote storage answers so while they take long to fetch.
var errSilent = errors.New("the broker has sent none of its records")

// silent tells whether an answer without records is no proof that there are none up to
// the end: compaction may have removed all of them.
func (r *Reader) silent(ctx context.Context, from int64) error {
	if _, end := r.log.Bounds(); from >= end {
		return nil
	}
	settings, err := broker.TopicSettings(ctx, r.client, r.topic, "cleanup.policy")
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed), err == nil && strings.Contains(settings["cleanup.policy"], "compact"):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w, from offset %d on", errSilent, from)
}

// Walk calls take with the records in [from, end), in order, fetch by fetch, with
// the offset to go on from. Walk returns the offset behind the last fetch.
func (r *Reader) Walk(ctx context.Context, from, end int64, take func(records []*kgo.Record, next int64) error) (int64, error) {
	for from < end {
		records, next, err := kafkalog.ReadTo(ctx, r, from, end)
		if err != nil {
			return from, err
		}
		if err := take(records, next); err != nil {
			return from, err
		}
		from = next
	}
	return from, nil
}

// Open opens all partitions of a topic, none of a topic that does not exist.
func Open(ctx context.Context, client *kgo.Client, topic string, opts ReadOptions) (logs []*kafkalog.Partition, err error) {
	err = opts.persist(ctx, topic, func() (err error) {
		_, logs, err = kafkalog.OpenTopic(ctx, client, topic)
		return err
	})
	return logs, err
}

// Oldest is the time before which records of the log may have been deleted; zero:
// none were. Only an event's own record tells: others may have any time, and a
// repaired one that of the repair. A log without such a record keeps records for a
// time at least; 0: for none.
func Oldest(ctx context.Context, log kafkalog.Log, keeps time.Duration) (latest time.Time, err error) {
	start, end := log.Bounds()
	if start == 0 {
		return time.Time{}, nil
	}
	for from := start; from < end && latest.IsZero(); {
		records, next, err := log.Read(ctx, from)
		if err != nil {
			return time.Time{}, err
		}
		for _, r := range records {
			if _, ok := idOf(r); ok && !marked(r) && r.Timestamp.After(latest) {
				latest = r.Timestamp
			}
		}
		if next == from {
			break
		}
		from = next
	}
	if latest.IsZero() {
		latest = time.Now().Add(-keeps)
	}
	return latest, nil
}

// marked tells whether a repair, a replay or a redrive has published the record.
func marked(r *kgo.Record) bool {
	return slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool {
		return h.Key == transform.HeaderRepair || h.Key == transform.HeaderReplay || h.Key == transform.HeaderRedrive
	})
}

// idOf returns the event's id; ok is false for a record of others.
func idOf(r *kgo.Record) (id []byte, ok bool) {
	id, _ = transform.Header(r.Headers, transform.HeaderID)
	return id, id != nil
}

// Since is kafkalog.Since for the partitions of a topic.
func Since(ctx context.Context, logs []*kafkalog.Partition, topic string, at time.Time, opts ReadOptions) (starts map[int32]int64, err error) {
	err = opts.persist(ctx, topic, func() (err error) {
		starts, err = kafkalog.Since(ctx, logs, at)
		return err
	})
	return starts, err
}

// persist repeats what fails for a reason that may pass, for opts.Patience at most.
func (o ReadOptions) persist(ctx context.Context, topic string, try func() error) error {
	waits := backoff.Series{Range: backoff.Range{First: 100 * time.Millisecond, Longest: 5 * time.Second}}
	since := time.Now()
	for told := false; ; {
		err := try()
		_, settled := errors.AsType[*failure.Error](err)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, kerr.OffsetOutOfRange):
			return &failure.Error{Class: failure.Transient, Remedy: "repeat the command", Err: fmt.Errorf("records of topic %q were deleted while they were read: %w", topic, err)}
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			return failure.Configf(o.Allow(topic), "the broker does not allow to read topic %q: %w", topic, err)
		case settled, !errors.Is(err, kafkalog.ErrOpenTransaction) && !errors.Is(err, errSilent) && !broker.MayPass(err):
			return fmt.Errorf("read topic %q: %w", topic, err)
		case time.Since(since) > o.Patience && errors.Is(err, kafkalog.ErrOpenTransaction):
			return &failure.Error{Class: failure.Transient, Remedy: "see `cdc-outbox check` (kafka.open_transactions), which names a transaction that does not end and the way to end it; then repeat the command",
				Err: fmt.Errorf("read topic %q: for %s: %w", topic, o.Patience, err)}
		case time.Since(since) > o.Patience:
			return fmt.Errorf("read topic %q: for %s: %w", topic, o.Patience, err)
		}
		if o.Stuck != nil && errors.Is(err, kafkalog.ErrOpenTransaction) {
			if stuck := o.Stuck(ctx, topic); stuck != nil {
				return fmt.Errorf("read topic %q: %w: %w", topic, err, stuck)
			}
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
