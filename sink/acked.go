package sink

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// topicID tells a topic from another one of the same name. It is zero where brokers give
// topics no id, which those before Kafka 2.8 do not.
type topicID [16]byte

func (id topicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// other reports whether these are the ids of two topics for certain.
func (id topicID) other(than topicID) bool {
	return id != than && id != topicID{} && than != topicID{}
}

// acked is how far the log of each partition of a topic reaches at least, as brokers have
// acknowledged records up to there. A log never becomes shorter by itself: retention and
// DeleteRecords move its start, compaction leaves gaps, and the markers of transactions
// take offsets. So an acknowledgement at an earlier offset tells that brokers have lost
// what they had acknowledged. The producer's sequence numbers do not tell it where each
// transaction has an epoch of its own, nor after a start.
type acked struct {
	id   topicID
	ends []end  // by partition
	used uint64 // the round that raised an end last
}

// end is an offset behind all that is known of a partition; 0: nothing is. noted is when
// this process learned it; zero: a checkpoint said so.
type end struct {
	offset int64
	marker int64 // so many of them are of a marker, which brokers may not have written yet
	noted  time.Time
}

// of is what is known of the partition.
func (a *acked) of(partition int32) end {
	if int(partition) < len(a.ends) {
		return a.ends[partition]
	}
	return end{}
}

// end is the offset behind the last record of the partition.
func (a *acked) end(partition int32) int64 { return a.of(partition).offset }

// raise notes the end of the partition. Of one before the end that is known, it notes the
// time.
func (a *acked) raise(partition int32, e end) {
	if n := int(partition) + 1; n > len(a.ends) {
		a.ends = append(a.ends, make([]end, n-len(a.ends))...)
	}
	if known := a.ends[partition]; known.offset > e.offset {
		e.offset, e.marker = known.offset, known.marker
	}
	a.ends[partition] = e
}

// String lists the partitions that have records, with their ends.
func (a *acked) String() string {
	var parts []string
	for partition, end := range a.ends {
		if end.offset > 0 {
			parts = append(parts, fmt.Sprintf("%d: %d", partition, end.offset))
		}
	}
	return strings.Join(parts, ", ")
}

// count notes that a partition has the record with the index in the round.
func (k *Kafka) count(t *topic, partition int32, index int) {
	s := &t.shares[partition]
	if s.records == 0 {
		s.topic, s.first = t, index
		k.shares = append(k.shares, s)
	}
	s.records++
}

// tally returns the shares of a round, or of a part of one. Those of a topic that is not
// resolved, as a checkpoint's, are left out: the next checkpoint heals what is lost there.
func (k *Kafka) tally(round []placed) []*share {
	k.rounds++
	k.shares = k.shares[:0]
	var t *topic
	for i := range round {
		rec := &round[i].Record
		if t == nil || t.name != rec.Topic {
			if t = k.topics[rec.Topic]; t == nil {
				continue
			}
			if t.round != k.rounds {
				t.begin(k.rounds)
			}
		}
		k.count(t, rec.Partition, i)
	}
	return k.shares
}

// end is the offset behind the share, once brokers have it. They may not say where an
// attempt before this one wrote it.
func (s *share) end(round []placed) (offset int64, ok bool) {
	first := round[s.first].Record.Offset
	return first + int64(s.records), first >= 0
}

// believe compares what brokers have just acknowledged of the round with what they
// acknowledged before.
func (k *Kafka) believe(ctx context.Context, round []placed, shares []*share) error {
	for _, s := range shares {
		p := &round[s.first]
		if k.failed[&p.Record] != nil || p.Record.Offset < 0 || p.Record.Offset >= s.topic.acked.end(p.Record.Partition) {
			continue
		}
		if err := k.shorter(ctx, s.topic, p); err != nil {
			return err
		}
	}
	return nil
}

// marker is how many offsets the end of a transaction takes in each of its partitions.
// Brokers write it after they have said that the transaction is committed, and before the
// next one of the same transactional id begins.
const marker = 1

// raise notes what brokers have acknowledged of the round, with so many offsets of a marker
// behind each share. Where some of it failed, the rest of a share may have come in parts, so
// that only its first record is certain.
func (k *Kafka) raise(round []placed, shares []*share, behind int64) {
	k.ledger.Lock()
	defer k.ledger.Unlock()
	now := time.Now()
	for _, s := range shares {
		p := &round[s.first]
		offset, ok := s.end(round)
		if len(k.failed) > 0 {
			offset, ok = p.Record.Offset+1, ok && k.failed[&p.Record] == nil
		}
		if ok {
			s.topic.acked.raise(p.Record.Partition, end{offset + behind, behind, now})
			s.topic.acked.used = k.rounds
		}
	}
}

// sameAsked is how often brokers must say that a topic is the one it was: one that has not
// heard of the new one yet says so, too.
const sameAsked = 4

// shorter judges an acknowledgement at an offset that was acknowledged before: either the
// topic is another one by now, or brokers have lost records.
func (k *Kafka) shorter(ctx context.Context, t *topic, p *placed) error {
	rec := &p.Record
	retry := backoff.Series{Range: waits}
	same := 0
	var unknown broker.Unknown
	for {
		found, err := k.lookup(ctx, t.name)
		if err == nil {
			same++
		}
		switch {
		case err == nil && found.id.other(t.acked.id):
			k.remade(t.name, t.acked, found.id)
			return nil
		case same == sameAsked:
			return lostRecords(k.cfg, t, p)
		case errors.Is(err, kerr.UnknownTopicOrPartition) && unknown.Missing(): // it was deleted
			k.remade(t.name, t.acked, topicID{})
			return nil
		}
		k.complain("a record was acknowledged at an offset that was acknowledged before; asking whether the topic was made anew",
			zap.String("topic", t.name), zap.Int32("partition", rec.Partition), zap.Error(err))
		if err := retry.Pause(ctx); err != nil {
			return err
		}
	}
}

// remade notes that the topic is another one of the same name. Everything
// acknowledged in the former topic is gone, by order of whoever deleted it.
func (k *Kafka) remade(name string, a *acked, id topicID) {
	k.log.Warn("the topic was deleted and created again: consumers that had not read all of it miss events that were acknowledged there",
		zap.String("topic", name), zap.String("acknowledged_ends", a.String()),
		zap.Stringer("id", id), zap.Stringer("former_id", a.id),
		zap.String("remedy", "publish again what consumers have not read: the outbox table and the positions of consumers tell which events these are"))
	k.observer.TopicRemade(name)
	k.ledger.Lock()
	defer k.ledger.Unlock()
	a.id, a.ends = id, nil
}

// lostRecords is the loss that an acknowledgement at an earlier offset tells of.
func lostRecords(cfg Options, t *topic, p *placed) error {
	rec, end := &p.Record, t.acked.end(p.Record.Partition)
	return failure.Lossf(lostRemedy(cfg, t.name, rec.Partition, rec.Offset),
		"brokers have lost records of topic %q that they had acknowledged: partition %d had records up to offset %d, "+
			"and event %s (LSN %s, index %d) was written at offset %d now. "+
			"Up to %d events before it are missing there, those at offsets %d to %d. %s",
		t.name, rec.Partition, end-1, p.Name(), p.Position.CommitLSN, p.Position.Seq, rec.Offset, end-rec.Offset, rec.Offset, end-1, likely(t.acked.id))
}

// likely are the likely causes of such a loss in the topic.
func likely(id topicID) string {
	anew := ""
	if id == (topicID{}) {
		anew = ", or the topic was deleted and created again, which is not known of it, as brokers gave it no id"
	}
	return "The likely causes are an unclean leader election (unclean.leader.election.enable, or too few replicas in sync with min.insync.replicas 1), " +
		"and a broker whose disk was put back to an earlier time" + anew
}

// lostRemedy says what to do about a partition whose log ends at an offset before what was
// acknowledged.
func lostRemedy(cfg Options, topic string, partition int32, end int64) string {
	last := ""
	if end > 0 {
		last = fmt.Sprintf(" The header cdc-lsn of the last record that is left tells where the gap begins: %s.", cfg.Tools().Command("kafka-console-consumer",
			fmt.Sprintf("--topic '%s' --partition %d --offset %d --max-messages 1 --property print.headers=true", topic, partition, end-1)))
	}
	return "set min.insync.replicas to 2 or more and unclean.leader.election.enable to false." + last +
		" Look at all topics, as other partitions may have lost records, too; " +
		"publish again, as new rows, the events of the outbox table that are missing in them. " +
		"Then " + catalog.AcceptGap
}
