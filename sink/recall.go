package sink

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// recallPatience bounds the search for the events of doubtful transactions.
const recallPatience = time.Minute

// skew is how much the clocks of a connector and of other producers may differ.
// A transaction's records lie before all records written by others so long after the
// transaction's timeout.
const skew = time.Minute

// laterInARow is how many records of others in a row must have a later time to end the search
// for the transaction's records: producers choose the times, and a clock may be wrong.
const laterInARow = 10000

// sameness is equal for two records of the same event.
type sameness [sha256.Size]byte

// identify returns the sameness of a record: topic, id and position, or, without the
// headers of the position, all but the timestamp, as dead letters have the attempt's.
func identify(r *kgo.Record) (id sameness) {
	h := sha256.New()
	var size [8]byte
	put := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint64(size[:0], uint64(len(b))))
		h.Write(b)
	}
	positioned := slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == transform.HeaderSeq })
	put([]byte(r.Topic))
	if !positioned {
		put(r.Key)
		put(r.Value)
	}
	for _, header := range r.Headers {
		switch header.Key {
		case headerError, transform.HeaderAsked: // may differ between attempts
			continue
		case transform.HeaderID, transform.HeaderLSN, transform.HeaderSeq:
		default:
			if positioned {
				continue
			}
		}
		put([]byte(header.Key))
		put(header.Value)
	}
	h.Sum(id[:0])
	return id
}

// Recall looks for the records that consumers see of doubtful transactions, and returns the
// transactions that brokers have, or may have, committed in part. Transact leaves out the
// visible records until Settled is called.
func (x *Transactions) Recall(ctx context.Context, doubtful []checkpoint.Doubtful) (torn []checkpoint.Doubtful, err error) {
	x.Settled()
	if len(doubtful) == 0 {
		return nil, nil
	}
	x.k.log.Info("looking for what consumers see of Kafka transactions that brokers aborted", zap.Int("transactions", len(doubtful)))
	ctx, release := x.k.connections.guard(ctx)
	defer release()
	limited, cancel := context.WithTimeout(ctx, recallPatience)
	defer cancel()
	visible := make(map[sameness]int)
	for _, d := range doubtful {
		n, all := 0, 0
		for topic, parts := range d.Written {
			for _, part := range parts {
				all += part.Records
			}
			records, err := x.search(limited, d, topic, parts)
			if err != nil {
				return nil, fmt.Errorf("look for what consumers see of a Kafka transaction of %s that may have been ended by halves, in topic %q (one start with sink.kafka.delivery: at_least_once does without, and repeats the transaction): %w",
					d.Saved.SavedAt.UTC().Format(time.RFC3339), topic, err)
			}
			for _, r := range records {
				if topic != x.k.quarantine { // whose records are written again under other numbers, and do no harm twice
					visible[identify(r)]++
				}
			}
			n += len(records)
		}
		if n > 0 || d.Committed { // otherwise aborted as a whole
			torn = append(torn, d)
		}
		if n > 0 && !d.Committed || n < all && d.Committed || d.Committed && d.Written == nil {
			x.k.log.Warn("brokers committed a Kafka transaction in a part of its partitions only; what consumers do not see of it is written again",
				zap.Int("records", all), zap.Int("records_that_consumers_see", n), zap.Bool("known_what_it_had", d.Written != nil))
		}
	}
	if len(visible) > 0 {
		x.visible = visible
	}
	return torn, nil
}

// Settled ends Recall's effect: all events of its transactions are committed.
func (x *Transactions) Settled() { x.visible = nil }

// leaveOut reports whether consumers already see this occurrence of the record: without the
// headers of the position, several events may have the same identity.
func (x *Transactions) leaveOut(r *kgo.Record) bool {
	id := identify(r)
	if x.left[id] >= x.visible[id] {
		return false
	}
	if x.left == nil {
		x.left = make(map[sameness]int)
	}
	x.left[id]++
	return true
}

// leftOut forgets the records left out by the transaction, now committed: they do not come
// again.
func (x *Transactions) leftOut() {
	for id, n := range x.left {
		x.visible[id] -= n
	}
	clear(x.left)
}

// search is find with patience for partitions without a leader.
func (x *Transactions) search(ctx context.Context, d checkpoint.Doubtful, topic string, parts map[int32]checkpoint.Part) ([]*kgo.Record, error) {
	retry := backoff.Series{Range: waits}
	var unknown broker.Unknown
	for {
		records, err := x.find(ctx, d, topic, parts)
		switch {
		case errors.Is(err, kerr.TopicAuthorizationFailed) && !d.Committed:
			x.k.log.Warn("not allowed to read what the last Kafka transaction wrote, so that it cannot be told whether brokers committed a part of it",
				zap.String("topic", topic), zap.String("remedy", x.k.cfg.Tools().Allow("Read", topic)))
			return nil, nil
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			return nil, failure.Configf(x.k.cfg.Tools().Allow("Read", topic), "%w", err)
		case errors.Is(err, kerr.UnknownTopicOrPartition) && unknown.Missing():
			return nil, nil // deleted: nobody sees the records
		case err == nil || !kerr.IsRetriable(err):
			return records, err
		}
		if paused := retry.Pause(ctx); paused != nil {
			return nil, errors.Join(err, paused)
		}
	}
}

// find returns the transaction's records in the topic, with the given parts, as far as
// consumers see them.
func (x *Transactions) find(ctx context.Context, d checkpoint.Doubtful, topic string, parts map[int32]checkpoint.Part) (seen []*kgo.Record, err error) {
	partitions := slices.Sorted(maps.Keys(parts))
	logs, err := kafkalog.Open(ctx, x.k.client, topic, partitions...)
	if err != nil {
		return nil, err
	}
	for i, log := range logs {
		start, end := log.Bounds()
		from := parts[partitions[i]].From
		sight := sight{
			Doubtful: d,
			over:     d.Saved.SavedAt.Add(x.timeout + skew),
			marked:   d.Committed && start <= from,
		}
		if err := kafkalog.Walk(ctx, log.Raw(), max(start, from), end, sight.visit); err != nil {
			return nil, err
		}
		seen = append(seen, sight.seen...)
	}
	return seen, nil
}

// sight finds the visible records of a transaction in a partition. The visit begins behind
// all earlier commits of the same claim, and includes markers.
type sight struct {
	checkpoint.Doubtful
	over time.Time // the transaction had ended by then, by the clocks of producers
	// marked: brokers certainly write a marker of the transaction here. If the checkpoint
	// was committed, brokers had all records by then.
	marked bool
	later  int // records of others in a row that are later than over
	open   []*kgo.Record
	seen   []*kgo.Record
}

// visit takes the next record, and reports whether more of them matter. With
// transaction.version 1 several transactions have the same epoch: earlier, aborted attempts,
// and, after a commit, the next transaction. The next claim aborted the latter, or the
// transaction here would not be in doubt.
func (s *sight) visit(r *kgo.Record) (more bool) {
	switch {
	case r.ProducerID != s.Producer:
		if s.later++; s.marked || r.Timestamp.Before(s.over) {
			s.later = 0
		}
		return s.later < laterInARow
	case !r.Attrs.IsControl():
		if r.ProducerEpoch == s.Epoch {
			s.open = append(s.open, r)
		}
		return r.ProducerEpoch <= s.Epoch
	case !kafkalog.Commits(r):
		s.open = nil
		return r.ProducerEpoch <= s.Epoch
	default: // without open records: the end of an earlier commit
		s.seen = s.open
		return len(s.seen) == 0
	}
}
