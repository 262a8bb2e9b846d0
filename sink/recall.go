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
		for topic, counts := range d.Written.Records {
			for _, count := range counts {
				all += count
			}
			records, err := x.search(limited, d, topic, counts)
			if err != nil {
				return nil, x.k.stop(ctx, fmt.Errorf("look for what consumers see of a Kafka transaction that may have been ended by halves, in all that was written to topic %q since %s (if that is more than can be read in %s, one start with sink.kafka.delivery: at_least_once does without, and repeats the transaction): %w",
					topic, since(d).UTC().Format(time.RFC3339), recallPatience, err))
			}
			for _, r := range records {
				visible[identify(r)] = true
			}
			n += len(records)
		}
		if n > 0 || d.Committed { // otherwise it was aborted as a whole
			torn = append(torn, d)
		}
		if d.Committed && (n < all || d.Written.Records == nil) { // otherwise it may have been committed as a whole
			x.sayTorn()
		}
	}
	if len(visible) > 0 {
		x.visible = visible
	}
	return torn, nil
}

// Settled implements Transactor.
func (x *Transactions) Settled() { x.visible, x.saidTorn = nil, false }

// leaveOut reports whether consumers see the record already.
func (x *Transactions) leaveOut(r *kgo.Record) bool {
	if x.visible == nil || !x.visible[identify(r)] {
		return false
	}
	x.sayTorn()
	return true
}

// sayTorn logs, once, that a transaction was ended by halves.
func (x *Transactions) sayTorn() {
	if !x.saidTorn {
		x.k.log.Warn("brokers committed a Kafka transaction in a part of its partitions only; what consumers do not see of it is written again")
	}
	x.saidTorn = true
}

// search is find with patience for partitions that have no leader at the moment.
func (x *Transactions) search(ctx context.Context, d checkpoint.Doubtful, topic string, counts map[int32]int) ([]*kgo.Record, error) {
	retry := backoff.Series{Range: waits}
	for asked := 1; ; asked++ {
		records, err := x.find(ctx, d, topic, counts)
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

// since is a time before which brokers have nothing of the transaction.
func since(d checkpoint.Doubtful) time.Time {
	at := d.Saved.SavedAt
	if d.Written.Oldest.Before(at) {
		at = d.Written.Oldest // rows have timestamps of their own
	}
	return at.Add(-skew)
}

// find returns what consumers of the topic see of the transaction, which has at most so
// many records in each partition.
func (x *Transactions) find(ctx context.Context, d checkpoint.Doubtful, topic string, counts map[int32]int) (seen []*kgo.Record, err error) {
	partitions := slices.Sorted(maps.Keys(counts))
	logs, err := kafkalog.Open(ctx, x.k.client, topic, since(d), partitions...)
	if err != nil {
		return nil, err
	}
	for i, log := range logs {
		records, err := sighted(ctx, log, d, counts[partitions[i]])
		if err != nil {
			return nil, err
		}
		seen = append(seen, records...)
	}
	return seen, nil
}

// sighted is find for one partition. The transaction's records are the last ones of its
// epoch there, if there are any.
func sighted(ctx context.Context, log *kafkalog.Partition, d checkpoint.Doubtful, count int) ([]*kgo.Record, error) {
	start, end := log.Bounds()
	for window := int64(kafkalog.FirstWindow); ; window *= kafkalog.WindowGrowth {
		from := max(start, end-window)
		records, err := kafkalog.Scan(ctx, log.Raw(), from, end, func(r *kgo.Record) bool { return r.ProducerID == d.Producer })
		if err != nil {
			return nil, err
		}
		if seen, enough := sight(records, d, count); enough || from == start {
			return seen, nil
		}
	}
}

// sight returns what consumers see of the transaction, of which the partition has at
// most count records, given the last records of its producer there. enough reports that
// there is no more of it before them.
//
// With transaction.version 1 other transactions have the same epoch. One that seems to
// be torn, because the next one was aborted, may have been committed as a whole, and
// then lies before what the next one wrote. What is seen of others does no harm: they
// do not come again.
func sight(records []*kgo.Record, d checkpoint.Doubtful, count int) (seen []*kgo.Record, enough bool) {
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
		open = nil
	}
	if !d.Committed { // then nothing else has this epoch behind it
		all, enough = all[max(0, len(all)-count):], enough || len(all) >= count
	}
	for _, r := range all {
		if committed[r] {
			seen = append(seen, r)
		}
	}
	return seen, enough || len(seen) >= count
}
