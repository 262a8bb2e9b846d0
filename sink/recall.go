package sink

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/kafkalog"
)

// recallPatience bounds the search for the events of doubtful transactions.
const recallPatience = time.Minute

// skew is how much the clocks of a connector and of brokers may differ: what a
// transaction has written is looked for in what brokers wrote since that much before
// it.
const skew = 10 * time.Minute

// unknownAsked is how often brokers must say that they do not know a topic until it
// counts as deleted: one that has just started may say so too.
const unknownAsked = 6

// identity is what makes a record the same event as another one.
type identity [sha256.Size]byte

// identify returns the identity of a record: all but its timestamp, which for a dead
// letter is that of the attempt, and what a broker said of it.
func identify(r *kgo.Record) (id identity) {
	h := sha256.New()
	var size [8]byte
	put := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint64(size[:0], uint64(len(b))))
		h.Write(b)
	}
	put([]byte(r.Topic))
	put(r.Key)
	put(r.Value)
	for _, header := range r.Headers {
		if header.Key != headerError {
			put([]byte(header.Key))
			put(header.Value)
		}
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
	ctx, release := x.k.connections.guard(ctx)
	defer release()
	limited, cancel := context.WithTimeout(ctx, recallPatience)
	defer cancel()
	visible := make(map[identity]bool)
	for _, d := range doubtful {
		n, all := 0, 0
		for topic, partitions := range d.Written {
			for partition, count := range partitions {
				records, err := x.search(limited, d, topic, partition, count)
				if err != nil {
					return nil, x.k.stop(ctx, fmt.Errorf("look for what consumers see of a Kafka transaction that was not ended as a whole, in topic %q: %w", topic, err))
				}
				for _, r := range records {
					visible[identify(r)] = true
				}
				n, all = n+len(records), all+count
			}
		}
		if n == 0 && !d.Committed {
			continue // it was aborted as a whole
		}
		torn = append(torn, d)
		if d.Committed && d.Written != nil && n >= all {
			continue // it was committed as a whole
		}
		x.k.log.Warn("brokers committed a Kafka transaction in a part of its partitions only; what consumers do not see of it is written again",
			zap.Int("records_that_consumers_see", n), zap.Bool("known_what_it_had", d.Written != nil))
	}
	if len(visible) > 0 {
		x.visible = visible
	}
	return torn, nil
}

// Settled implements Transactor.
func (x *Transactions) Settled() { x.visible = nil }

// search is find with patience for partitions that have no leader at the moment.
func (x *Transactions) search(ctx context.Context, d checkpoint.Doubtful, topic string, partition int32, count int) ([]*kgo.Record, error) {
	retry := backoff.Series{Range: waits}
	for asked := 1; ; asked++ {
		records, err := x.find(ctx, d, topic, partition, count)
		switch {
		case errors.Is(err, kerr.TopicAuthorizationFailed) && !d.Committed:
			x.k.complain("not allowed to read what the last Kafka transaction wrote, so that it cannot be told whether brokers committed a part of it",
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

// find returns what consumers of the partition see of the transaction, which has at
// most count records there. They are the last ones of its epoch. Where brokers have
// written nothing of it since it began, the partition has none.
func (x *Transactions) find(ctx context.Context, d checkpoint.Doubtful, topic string, partition int32, count int) ([]*kgo.Record, error) {
	log, err := kafkalog.Open(ctx, x.k.client, topic, partition)
	if err != nil {
		return nil, err
	}
	start, end := log.Bounds()
	since := start
	for window := int64(kafkalog.FirstWindow); ; window *= kafkalog.WindowGrowth {
		from := max(start, end-window)
		records, err := kafkalog.Scan(ctx, log.Raw(), from, end, func(r *kgo.Record) bool { return r.ProducerID == d.Producer })
		if err != nil {
			return nil, err
		}
		seen, some, enough := sight(records, d, count)
		if enough || from == start || !some && from <= since {
			return seen, nil
		}
		if since == start {
			later, err := log.Since(ctx, d.Saved.SavedAt.Add(-skew))
			if err != nil {
				return nil, err
			}
			since, _ = later.Bounds()
		}
	}
}

// sight returns what consumers see of the transaction, of which the partition has at
// most count records, given the last records of its producer there. some reports that
// any of it is among them, its end included, and enough that there is no more of it
// before them.
//
// With transaction.version 1 other transactions have the same epoch. One that seems to
// be torn, because the next one was aborted, may have been committed as a whole, and
// then lies before what the next one wrote. What is seen of others does no harm: they
// do not come again.
func sight(records []*kgo.Record, d checkpoint.Doubtful, count int) (seen []*kgo.Record, some, enough bool) {
	var open, all []*kgo.Record
	committed := make(map[*kgo.Record]bool)
	for _, r := range records {
		switch {
		case !r.Attrs.IsControl():
			enough = enough || r.ProducerEpoch < d.Epoch
			if r.ProducerEpoch == d.Epoch {
				open, all = append(open, r), append(all, r)
			}
			continue
		case kafkalog.Commits(r):
			for _, in := range open {
				committed[in] = true
			}
		}
		some, open = some || r.ProducerEpoch == d.Aborted, nil
	}
	some = some || len(all) > 0
	if !d.Committed { // then nothing else has this epoch behind it
		all, enough = all[max(0, len(all)-count):], enough || len(all) >= count
	}
	for _, r := range all {
		if committed[r] {
			seen = append(seen, r)
		}
	}
	return seen, some, enough || len(seen) >= count
}
