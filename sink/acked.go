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

// topicID tells two topics of the same name apart. Brokers before Kafka 2.8 give topics no
// id: zero.
type topicID [16]byte

func (id topicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// other reports whether the ids are certainly of two topics.
func (id topicID) other(than topicID) bool {
	return id != than && id != topicID{} && than != topicID{}
}

// acked has the ends of a topic's partitions, as acknowledged by brokers. No log becomes
// shorter by itself: retention and DeleteRecords move the start, compaction leaves gaps, and
// the markers of transactions take offsets. So an acknowledgement at an earlier offset means
// lost records. The producer's sequence numbers do not show such a loss after a start, nor
// where each transaction has an epoch of its own.
type acked struct {
	id   topicID
	ends []end  // by partition
	used uint64 // the last round to raise an end
}

// end is the offset behind the last known record of a partition; 0: none is known. noted is
// the time this process learned the offset; zero: from a checkpoint.
type end struct {
	offset int64
	marker int64 // offsets of a marker among them, which brokers may not have written yet
	noted  time.Time
}

func (a *acked) of(partition int32) end {
	if int(partition) < len(a.ends) {
		return a.ends[partition]
	}
	return end{}
}

// end is the offset behind the last record of the partition.
func (a *acked) end(partition int32) int64 { return a.of(partition).offset }

// raise notes the end of the partition; of an end before the known end only the time.
func (a *acked) raise(partition int32, e end) {
	if n := int(partition) + 1; n > len(a.ends) {
		a.ends = append(a.ends, make([]end, n-len(a.ends))...)
	}
	if known := a.ends[partition]; known.offset > e.offset {
		e.offset, e.marker = known.offset, known.marker
	}
	a.ends[partition] = e
}

// String lists the partitions with records, and their ends.
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

// tally returns the shares of a round, or of a part of a round. Topics that are not
// resolved, such as a checkpoint's, are left out: the next checkpoint heals a loss there.
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

// end is the offset behind the share, once brokers have the share. Brokers may not say where
// an earlier attempt wrote it.
func (s *share) end(round []placed) (offset int64, ok bool) {
	first := round[s.first].Record.Offset
	return first + int64(s.records), first >= 0
}

// believe compares the acknowledgements of the round with earlier ones.
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

// marker is the number of offsets taken by the end of a transaction in each partition.
// Brokers write the marker after the answer to EndTxn, and before the next transaction of
// the same transactional id begins.
const marker = 1

// raise notes the acknowledgements of the round, with so many offsets of a marker behind each
// share. After a failure, the rest of a share may have come in parts, so only the first
// record is certain.
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

// sameAsked is how often brokers must confirm a topic's id: a broker without news of a new
// topic confirms the old id, too.
const sameAsked = 4

// shorter judges an acknowledgement at an offset acknowledged before: either the topic was
// made anew, or brokers have lost records.
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
		case errors.Is(err, kerr.UnknownTopicOrPartition) && unknown.Missing(): // deleted
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

// remade notes that the topic was made anew. Everything acknowledged in the former topic is
// gone, by order of an operator.
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

// lostRecords is the error of an acknowledgement at an earlier offset.
func lostRecords(cfg Options, t *topic, p *placed) error {
	rec, end := &p.Record, t.acked.end(p.Record.Partition)
	return failure.Lossf(lostRemedy(cfg, t.name, rec.Partition, rec.Offset),
		"brokers have lost records of topic %q that they had acknowledged: partition %d had records up to offset %d, "+
			"and event %s (LSN %s, index %d) was written at offset %d now. "+
			"Up to %d events before it are missing there, those at offsets %d to %d. %s",
		t.name, rec.Partition, end-1, p.Name(), p.Position.CommitLSN, p.Position.Seq, rec.Offset, end-rec.Offset, rec.Offset, end-1, likely(t.acked.id))
}

// likely names the likely causes of a loss in the topic.
func likely(id topicID) string {
	anew := ""
	if id == (topicID{}) {
		anew = ", or the topic was deleted and created again, which is not known of it, as brokers gave it no id"
	}
	return "The likely causes are an unclean leader election (unclean.leader.election.enable, or too few replicas in sync with min.insync.replicas 1), " +
		"and a broker whose disk was put back to an earlier time" + anew
}

// lostRemedy is the remedy for a partition whose log ends before an acknowledged offset.
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
