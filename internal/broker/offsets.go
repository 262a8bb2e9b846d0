package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Offset is an offset of a partition, or the leader's error.
type Offset struct {
	At  int64
	Err error
}

// Offsets are by topic and partition. A topic without an answer has partition -1.
type Offsets map[string]map[int32]Offset

// EndOffsets returns the ends of topics, or, without topics, of all: the high watermarks, as
// told by the leaders known to the client. A Partly error comes with the rest.
func EndOffsets(ctx context.Context, client *kgo.Client, topics ...string) (Offsets, error) {
	return offsets(kadm.NewClient(client).ListEndOffsets(ctx, topics...))
}

// StableOffsets is EndOffsets for read_committed consumers: the last stable offsets.
func StableOffsets(ctx context.Context, client *kgo.Client, topics ...string) (Offsets, error) {
	return offsets(kadm.NewClient(client).ListCommittedOffsets(ctx, topics...))
}

func offsets(listed kadm.ListedOffsets, err error) (Offsets, error) {
	all := make(Offsets, len(listed))
	for topic, partitions := range listed {
		all[topic] = make(map[int32]Offset, len(partitions))
		for partition, l := range partitions {
			all[topic][partition] = Offset{l.Offset, l.Err}
		}
	}
	return all, partly(err)
}

// Held is a partition with an open transaction.
type Held struct {
	Topic       string
	Partition   int32
	Stable, End int64
}

// HeldBack compares stable offsets with later ends. A transaction begun in between shows as
// open.
func HeldBack(stable, ends Offsets) (held []Held) {
	for topic, partitions := range ends {
		for partition, end := range partitions {
			if low, ok := stable[topic][partition]; ok && low.Err == nil && end.Err == nil && low.At < end.At {
				held = append(held, Held{topic, partition, low.At, end.At})
			}
		}
	}
	return held
}

// Partly is the error of an incomplete answer.
type Partly struct {
	Untold []Untold
	err    error
}

// Untold is a missing part of an answer, and the reason.
type Untold struct {
	Of  string
	Err error
}

// Error implements error.
func (e *Partly) Error() string { return e.err.Error() }

// Unwrap returns the client's error.
func (e *Partly) Unwrap() error { return e.err }

// partly turns an error about some of the brokers asked into a Partly.
func partly(err error) error {
	parts, ok := errors.AsType[*kadm.ShardErrors](err)
	if !ok {
		return err
	}
	e := &Partly{err: err}
	for _, part := range parts.Errs {
		e.Untold = append(e.Untold, Untold{subject(part), part.Err})
	}
	return e
}

// subject names the subject of a failed request.
func subject(part kadm.ShardError) string {
	var names []string
	switch req := part.Req.(type) {
	case *kmsg.ListOffsetsRequest:
		for _, t := range req.Topics {
			var numbers []int32
			for _, p := range t.Partitions {
				numbers = append(numbers, p.Partition)
			}
			names = append(names, Partitions(t.Topic, numbers...))
		}
	case *kmsg.DescribeProducersRequest:
		for _, t := range req.Topics {
			names = append(names, Partitions(t.Topic, t.Partitions...))
		}
	case *kmsg.DescribeTransactionsRequest:
		for _, id := range req.TransactionalIDs {
			names = append(names, fmt.Sprintf("transactional id %q", id))
		}
	}
	if len(names) == 0 {
		return fmt.Sprintf("broker %d", part.Broker.NodeID)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// Partitions names partitions of a topic, for people.
func Partitions(topic string, numbers ...int32) string {
	return fmt.Sprintf("topic %q, partitions %v", topic, slices.Sorted(slices.Values(numbers)))
}
