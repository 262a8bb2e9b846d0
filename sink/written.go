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

// withMark puts the mark into the last round, with what there is besides it, and with how
// far the logs of topics reach once it counts. The markers of the commit may come later.
func (x *Transactions) withMark(ctx context.Context, rounds [][]placed, mark *kgo.Record) ([][]placed, error) {
	marked := placed{Event: &transform.Event{Record: *mark}, wanted: mark.Partition}
	written := checkpoint.Written{}
	for _, round := range rounds {
		for _, p := range round {
			written.Count(p.Record.Topic, p.Record.Partition)
		}
	}
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

// endTimeout bounds one question for the ends of a topic's partitions.
const endTimeout = 10 * time.Second

// endAge is how long the end of a partition is used before brokers are asked
// for a later one, within endRenewal. Records that others have written behind
// it have to be read if the transaction is in doubt. So an old end costs
// reading, but is right: a broker that is silent, and perhaps leads other
// partitions only, must not hold transactions up.
const (
	endAge     = 10 * time.Second
	endRenewal = 500 * time.Millisecond
)

// endOf returns an offset behind all that this claim has committed to the partition. It
// asks brokers if nothing was committed there for a while, and waits, as the transaction
// would, while the partition has no leader.
func (x *Transactions) endOf(ctx context.Context, topic string, partition int32) (int64, error) {
	acked := x.k.acked[topic]
	if old := acked.of(partition); !old.noted.IsZero() && time.Since(old.noted) >= endAge {
		x.noteEnd(acked, partition, old.offset) // it is used on, if brokers do not say a later one
		_, _ = x.askEnds(ctx, endRenewal, topic)
	}
	retry := backoff.Series{Range: waits}
	var unknown broker.Unknown
	for {
		if end := acked.of(partition); !end.noted.IsZero() {
			return end.offset, nil
		}
		listed, err := x.askEnds(ctx, endTimeout, topic)
		switch answer, ok := listed[partition]; {
		case ok && answer.Err == nil:
			continue
		case ok:
			err = answer.Err
		case err == nil: // the client does not know the partition yet
			err = kerr.UnknownTopicOrPartition
		}
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition) && unknown.Missing():
			return 0, nil // it was deleted, which the transaction finds out
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

// askEnds asks for the ends of a topic's partitions, and notes those that brokers say.
func (x *Transactions) askEnds(ctx context.Context, timeout time.Duration, topic string) (map[int32]broker.Offset, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	listed, err := broker.EndOffsets(ctx, x.k.client, topic)
	for partition, end := range listed[topic] {
		if end.Err == nil { // a broker that does not lead any more may say less than it should
			x.noteEnd(x.k.acked[topic], partition, end.At)
		}
	}
	return listed[topic], err
}

// noteEnd notes that all that was committed to the partition is before the offset, unless
// a later one is known.
func (x *Transactions) noteEnd(acked *acked, partition int32, offset int64) {
	x.k.ledger.Lock()
	defer x.k.ledger.Unlock()
	acked.raise(partition, end{offset: offset, noted: time.Now()})
}
