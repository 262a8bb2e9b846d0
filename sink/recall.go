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
	"github.com/cdc-outbox/cdc-outbox/internal/kafkalog"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// recallPatience bounds the search for the events of doubtful transactions.
const recallPatience = time.Minute

// skew is how much the clocks of a connector and of brokers may differ: what a
// transaction has written is looked for from that much before its oldest timestamp on.
const skew = 10 * time.Minute

// unknownAsked is how often brokers must say that they do not know a topic until it
// counts as deleted: one that has just started may say so too.
const unknownAsked = 6

// identity is what makes a record the same event as another one.
type identity [sha256.Size]byte

// identify returns the identity of a record: topic, id and position, or, without the
// headers of the position, all but the timestamp, which for a dead letter is that of
// the attempt.
func identify(r *kgo.Record) (id identity) {
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
		case headerError:
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

// Recall implements Transactor.
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
	visible := make(map[identity]bool)
	for _, d := range doubtful {
		n, all := 0, 0
		for topic, parts := range d.Written.Parts {
			for _, part := range parts {
				all += part.Records
			}
			records, err := x.search(limited, d, topic, parts)
			if err != nil {
				return nil, fmt.Errorf("look for what consumers see of a Kafka transaction that may have been ended by halves, in all that was written to topic %q since %s (if that is more than can be read in %s, one start with sink.kafka.delivery: at_least_once does without, and repeats the transaction): %w",
					topic, since(d).UTC().Format(time.RFC3339), recallPatience, err)
			}
			for _, r := range records {
				visible[identify(r)] = true
			}
			n += len(records)
		}
		if n > 0 || d.Committed { // otherwise it was aborted as a whole
			torn = append(torn, d)
		}
		if n > 0 && !d.Committed || n < all && d.Committed || d.Committed && d.Written.Parts == nil {
			x.k.log.Warn("brokers committed a Kafka transaction in a part of its partitions only; what consumers do not see of it is written again",
				zap.Int("records", all), zap.Int("records_that_consumers_see", n), zap.Bool("known_what_it_had", d.Written.Parts != nil))
		}
	}
	if len(visible) > 0 {
		x.visible = visible
	}
	return torn, nil
}

// Settled implements Transactor.
func (x *Transactions) Settled() { x.visible = nil }

// search is find with patience for partitions that have no leader at the moment.
func (x *Transactions) search(ctx context.Context, d checkpoint.Doubtful, topic string, parts map[int32]checkpoint.Part) ([]*kgo.Record, error) {
	retry := backoff.Series{Range: waits}
	for asked := 1; ; asked++ {
		records, err := x.find(ctx, d, topic, parts)
		switch {
		case errors.Is(err, kerr.TopicAuthorizationFailed) && !d.Committed:
			x.k.log.Warn("not allowed to read what the last Kafka transaction wrote, so that it cannot be told whether brokers committed a part of it",
				zap.String("topic", topic), zap.String("remedy", AllowCommand(x.k.cfg, "Read", topic)))
			return nil, nil
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			return nil, failure.Configf(AllowCommand(x.k.cfg, "Read", topic), "%w", err)
		case errors.Is(err, kerr.UnknownTopicOrPartition) && asked > unknownAsked:
			return nil, nil // it was deleted, so that nobody sees it
		case err == nil || !kerr.IsRetriable(err):
			return records, err
		}
		if paused := retry.Pause(ctx); paused != nil {
			return nil, errors.Join(err, paused)
		}
	}
}

// since is a time before which brokers have nothing of the transaction.
func since(d checkpoint.Doubtful) time.Time {
	at := d.Saved.SavedAt
	if d.Written.Oldest.Before(at) {
		at = d.Written.Oldest // rows have timestamps of their own
	}
	return at.Add(-skew)
}

// find returns what consumers of the topic see of the transaction, which has these parts
// there.
func (x *Transactions) find(ctx context.Context, d checkpoint.Doubtful, topic string, parts map[int32]checkpoint.Part) (seen []*kgo.Record, err error) {
	partitions := slices.Sorted(maps.Keys(parts))
	logs, err := kafkalog.Open(ctx, x.k.client, topic, since(d), partitions...)
	if err != nil {
		return nil, err
	}
	for i, log := range logs {
		records, err := sighted(ctx, log, d, parts[partitions[i]].From)
		if err != nil {
			return nil, err
		}
		seen = append(seen, records...)
	}
	return seen, nil
}

// sighted is find for one partition, which has nothing of the transaction before the
// offset first. It reads backwards until it meets what the producer wrote before it got
// the transaction's epoch.
func sighted(ctx context.Context, log *kafkalog.Partition, d checkpoint.Doubtful, first int64) ([]*kgo.Record, error) {
	start, end := log.Bounds()
	if first <= end { // otherwise the topic is another one by now
		start = max(start, first)
	}
	for window := int64(kafkalog.FirstWindow); ; window *= kafkalog.WindowGrowth {
		from, former := max(start, end-window), false
		records, err := kafkalog.Scan(ctx, log.Raw(), from, end, func(r *kgo.Record) bool {
			ours := r.ProducerID == d.Producer
			former = former || ours && r.ProducerEpoch < d.Epoch
			return ours && (r.Attrs.IsControl() || r.ProducerEpoch == d.Epoch)
		})
		if err != nil {
			return nil, err
		}
		if former || from == start {
			return sight(records, d), nil
		}
	}
}

// sight returns what consumers see of the transaction, given the records of its epoch
// in a partition, with all markers of its producer behind them. With
// transaction.version 1 other transactions have the same epoch. Those behind it were
// aborted, or it would not be in doubt, and those before it were committed.
func sight(records []*kgo.Record, d checkpoint.Doubtful) (seen []*kgo.Record) {
	var open []*kgo.Record
	for _, r := range records {
		switch {
		case !r.Attrs.IsControl():
			open = append(open, r)
			continue
		case kafkalog.Commits(r) && len(open) > 0:
			seen = open
		case r.ProducerEpoch > d.Epoch && len(open) > 0 && !d.Committed: // the last one of the epoch, which is this one
			seen = nil
		}
		open = nil
	}
	return seen
}
