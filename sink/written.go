package sink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// withMark adds the mark to the last round. The mark's headers have the transaction's records
// by partition, and the ends of topics after the commit. The markers of the commit may come
// later.
func (x *Transactions) withMark(ctx context.Context, rounds [][]placed, mark *kgo.Record) ([][]placed, error) {
	marked := placed{Event: &transform.Event{Record: *mark}, wanted: mark.Partition}
	written := checkpoint.Written{}
	for _, round := range rounds {
		for _, p := range round {
			written.Count(p.Record.Topic, p.Record.Partition)
		}
	}
	x.askAhead(ctx, written)
	ends := x.k.Ends()
	for topic, parts := range written {
		for partition, part := range parts {
			var err error
			if part.From, err = x.endOf(ctx, topic, partition); err != nil {
				return nil, err
			}
			parts[partition] = part
			ends.Raise(topic, x.k.acked[topic].id.text(), partition, part.From+int64(part.Records))
		}
	}
	headers := slices.Clip(marked.Record.Headers)
	for _, h := range []struct {
		key   string
		value interface{ Header() ([]byte, error) }
	}{{checkpoint.WrittenHeader, written}, {checkpoint.EndsHeader, ends}} {
		value, err := h.value.Header()
		if err != nil {
			return nil, err
		}
		headers = append(headers, kgo.RecordHeader{Key: h.key, Value: value})
	}
	marked.Record.Headers = headers
	if n := len(rounds); n > 0 {
		return append(rounds[:n-1:n-1], append(rounds[n-1], marked)), nil
	}
	return [][]placed{{marked}}, nil
}

// endTimeout bounds a question for the ends of a topic's partitions.
const endTimeout = 10 * time.Second

// endAge is the age of a partition's end from which brokers are asked for a later
// end, within endRenewal. If the transaction is in doubt, all records of others
// behind the end have to be read. So an old end costs reading, but is right: a
// silent broker, perhaps the leader of other partitions only, must not hold
// transactions up.
const (
	endAge     = 10 * time.Second
	endRenewal = 500 * time.Millisecond
)

// askAhead asks for the ends that are not known, or old, in one question each: of a
// transaction with many topics, to ask for each would take as many round trips. endOf asks
// again for an unknown end without an answer; an old one is used.
func (x *Transactions) askAhead(ctx context.Context, written checkpoint.Written) {
	var unknown, old []string
	now := time.Now()
	for topic, parts := range written {
		acked, isUnknown, isOld := x.k.acked[topic], false, false
		for partition := range parts {
			end := acked.of(partition)
			isUnknown = isUnknown || end.noted.IsZero()
			if !end.noted.IsZero() && now.Sub(end.noted) >= endAge {
				isOld = true
				x.noteEnd(acked, partition, end.offset)
			}
		}
		switch {
		case isUnknown:
			unknown = append(unknown, topic)
		case isOld:
			old = append(old, topic)
		}
	}
	for _, ask := range []struct {
		topics  []string
		timeout time.Duration
	}{{unknown, endTimeout}, {old, endRenewal}} {
		if len(ask.topics) > 0 {
			_, _ = x.askEnds(ctx, ask.timeout, ask.topics...)
		}
	}
}

// endOf returns an offset behind all commits of this claim to the partition. It asks brokers
// if none is known, and waits, as the transaction would, while the partition has no leader.
func (x *Transactions) endOf(ctx context.Context, topic string, partition int32) (int64, error) {
	acked := x.k.acked[topic]
	retry := backoff.Series{Range: waits}
	var unknown broker.Unknown
	for {
		if end := acked.of(partition); !end.noted.IsZero() {
			return end.offset, nil
		}
		listed, err := x.askEnds(ctx, endTimeout, topic)
		switch answer, ok := listed[topic][partition]; {
		case ok && answer.Err == nil:
			continue
		case ok:
			err = answer.Err
		case err == nil: // the client does not know the partition yet
			err = kerr.UnknownTopicOrPartition
		}
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition) && unknown.Missing():
			return 0, nil // deleted, as the transaction finds out
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			return 0, failure.Configf(x.k.cfg.Tools().Allow("Write --operation Describe", topic), "ask for the ends of topic %q: %w", topic, err)
		case !broker.MayPass(err):
			return 0, unsettled(fmt.Errorf("ask for the end of partition %d of topic %q: %w", partition, topic, err))
		}
		x.k.complain("a partition's end is not known, so that no transaction can begin; asking again",
			zap.String("topic", topic), zap.Int32("partition", partition), zap.Error(err))
		if err := retry.Pause(ctx); err != nil {
			return 0, err
		}
	}
}

// askEnds asks for the ends of the topics' partitions, and notes the answers.
func (x *Transactions) askEnds(ctx context.Context, timeout time.Duration, topics ...string) (broker.Offsets, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	listed, err := broker.EndOffsets(ctx, x.k.client, topics...)
	for _, topic := range topics {
		for partition, end := range listed[topic] {
			if end.Err == nil { // a former leader may answer too early an end
				x.noteEnd(x.k.acked[topic], partition, end.At)
			}
		}
	}
	return listed, err
}

// noteEnd notes an offset behind all commits to the partition, unless a later end is known.
func (x *Transactions) noteEnd(acked *acked, partition int32, offset int64) {
	x.k.ledger.Lock()
	defer x.k.ledger.Unlock()
	acked.raise(partition, end{offset: offset, noted: time.Now()})
}
