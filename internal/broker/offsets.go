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

// Offset is one of a partition, or why its leader does not tell it.
type Offset struct {
	At  int64
	Err error
}

// Offsets are by topic and partition. A topic that brokers do not tell of has partition -1.
type Offsets map[string]map[int32]Offset

// EndOffsets returns where the logs of topics end, without topics those of all: the high
// watermarks, as the leaders tell that the client knows. With an error that is Partly it
// returns the others.
func EndOffsets(ctx context.Context, client *kgo.Client, topics ...string) (Offsets, error) {
	return offsets(kadm.NewClient(client).ListEndOffsets(ctx, topics...))
}

// StableOffsets is EndOffsets for consumers that read what is committed.
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

// HeldBack compares stable offsets with ends that brokers told later. A transaction that
// began in between shows as one that is open.
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

// Partly is the error of an answer that lacks a part.
type Partly struct {
	Untold []Untold
	err    error
}

// Untold is what a broker did not tell of, and why.
type Untold struct {
	Of  string
	Err error
}

// Error implements error.
func (e *Partly) Error() string { return e.err.Error() }

// Unwrap returns the client's error.
func (e *Partly) Unwrap() error { return e.err }

// partly turns an error of a request to several brokers that is about some of them.
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

// subject names what a request that failed was about.
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
