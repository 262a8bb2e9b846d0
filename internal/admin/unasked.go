package admin

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// unasked collects what a cluster could not be asked for, while it told the rest.
type unasked struct {
	of   []string
	last error
}

// take returns nil where err is about a part of the answers only, and notes that part.
func (u *unasked) take(err error) error {
	parts, ok := errors.AsType[*kadm.ShardErrors](err)
	if !ok {
		return err
	}
	for _, part := range parts.Errs {
		u.note(about(part), part.Err)
	}
	return nil
}

func (u *unasked) note(of string, err error) {
	if !slices.Contains(u.of, of) {
		u.of = append(u.of, of)
	}
	u.last = err
}

// about names what a request that failed was about.
func about(part kadm.ShardError) string {
	var names []string
	switch req := part.Req.(type) {
	case *kmsg.ListOffsetsRequest:
		for _, t := range req.Topics {
			var numbers []int32
			for _, p := range t.Partitions {
				numbers = append(numbers, p.Partition)
			}
			names = append(names, partitionsOf(t.Topic, numbers))
		}
	case *kmsg.DescribeProducersRequest:
		for _, t := range req.Topics {
			names = append(names, partitionsOf(t.Topic, t.Partitions))
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

func partitionsOf(topic string, partitions []int32) string {
	partitions = slices.Clone(partitions)
	slices.Sort(partitions)
	return fmt.Sprintf("topic %q, partitions %v", topic, partitions)
}

// err is nil where all could be asked.
func (u *unasked) err(cfg sink.Options) error {
	if len(u.of) == 0 {
		return nil
	}
	return &failure.Error{
		Class:  failure.Transient,
		Remedy: sink.UnavailableCommand(cfg),
		Err:    &partly{fmt.Errorf("no broker tells of transactions of %s: %w", strings.Join(u.of, "; "), u.last)},
	}
}

// partly is the error of a list of transactions that lacks those of which no broker tells.
type partly struct{ err error }

// Error implements error.
func (e *partly) Error() string { return e.err.Error() }

// Unwrap returns the last reason.
func (e *partly) Unwrap() error { return e.err }

func isPartly(err error) bool {
	_, ok := errors.AsType[*partly](err)
	return ok
}
