package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TransactionTopic is the coordinators' topic of transactions. The leader of a partition is
// the coordinator of the transactions there.
const TransactionTopic = "__transaction_state"

// CoordinatorsAway counts the partitions of TransactionTopic without a leader: no broker
// tells of their transactions. Without the topic there is no coordinator, and the count is 0.
func CoordinatorsAway(ctx context.Context, of kmsg.Requestor) (away int, err error) {
	topic, err := Topic(ctx, of, TransactionTopic)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("ask for the leaders of topic %s: %w", TransactionTopic, err)
	}
	for _, p := range topic.Partitions {
		if p.ErrorCode != 0 || p.Leader < 0 {
			away++
		}
	}
	return away, nil
}

// openStates are the states of a transaction that holds consumers back.
var openStates = []string{"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"}

// Transaction is an open transaction of a coordinator.
type Transaction struct {
	ID       string // transactional
	Producer int64

	// The other fields are from DescribeTransactions.

	State   string
	Began   time.Time // zero: the broker does not tell
	Timeout time.Duration
	Topics  []string
}

// OpenTransactions returns the open transactions of the producers, or, without producers,
// all, as far as brokers show them to us. A Partly error comes with the rest.
func OpenTransactions(ctx context.Context, client *kgo.Client, producers ...int64) (all []Transaction, err error) {
	listed, err := kadm.NewClient(client).ListTransactions(ctx, producers, openStates)
	for _, l := range listed.Sorted() {
		all = append(all, Transaction{ID: l.TxnID, Producer: l.ProducerID, State: l.State})
	}
	return all, partly(err)
}

// DescribeTransactions returns the transactions still open, with all fields known to
// coordinators, in the order of their ids. A Partly error comes with the rest.
func DescribeTransactions(ctx context.Context, client *kgo.Client, listed []Transaction) (all []Transaction, err error) {
	if len(listed) == 0 {
		return nil, nil // kadm takes none for all
	}
	var ids []string
	for _, t := range listed {
		ids = append(ids, t.ID)
	}
	described, err := kadm.NewClient(client).DescribeTransactions(ctx, ids...)
	for _, d := range described.Sorted() {
		if d.Err != nil || !slices.Contains(openStates, d.State) {
			continue
		}
		t := Transaction{ID: d.TxnID, Producer: d.ProducerID, State: d.State, Timeout: time.Duration(d.TimeoutMillis) * time.Millisecond, Topics: d.Topics.Topics()}
		if d.StartTimestamp > 0 {
			t.Began = time.UnixMilli(d.StartTimestamp)
		}
		all = append(all, t)
	}
	return all, partly(err)
}

// Producer is a producer that has written to a partition in transactions.
type Producer struct {
	Topic     string
	Partition int32
	ID        int64
	Epoch     int16
	Last      time.Time // of its records there
	Open      int64     // the first offset of the open transaction; -1: none is open

	coordinator int32 // epoch of the coordinator
}

// Producers returns the producers of partitions. The right to Read the topics is required. A
// Partly error comes with the rest.
func Producers(ctx context.Context, client *kgo.Client, held []Held) (all []Producer, err error) {
	all, _, err = producers(ctx, client, held)
	return all, err
}

// ProducersOf is Producers for a single partition, with the leader's error.
func ProducersOf(ctx context.Context, client *kgo.Client, topic string, partition int32) ([]Producer, error) {
	all, refused, err := producers(ctx, client, []Held{{Topic: topic, Partition: partition}})
	return all, cmp.Or(err, refused)
}

func producers(ctx context.Context, client *kgo.Client, held []Held) (all []Producer, refused, err error) {
	var where kadm.TopicsSet
	for _, h := range held {
		where.Add(h.Topic, h.Partition)
	}
	described, err := kadm.NewClient(client).DescribeProducers(ctx, where)
	for _, partition := range described.SortedPartitions() {
		refused = cmp.Or(refused, partition.Err)
		for _, p := range partition.ActiveProducers.Sorted() {
			all = append(all, Producer{p.Topic, p.Partition, p.ProducerID, p.ProducerEpoch, time.UnixMilli(p.LastTimestamp), p.CurrentTxnStartOffset, p.CoordinatorEpoch})
		}
	}
	return all, refused, partly(err)
}

// AbortIn writes the end of the producer's transaction to the partition, as the coordinator
// would. As with Kafka's own tool, the coordinator's epoch is the last epoch there, so that
// today's coordinators are not fenced off. The right to ClusterAction on the cluster is
// required.
func AbortIn(ctx context.Context, client *kgo.Client, p Producer) error {
	marker := kadm.TxnMarkers{ProducerID: p.ID, ProducerEpoch: p.Epoch, CoordinatorEpoch: max(0, p.coordinator)}
	marker.Topics.Add(p.Topic, p.Partition)
	written, err := kadm.NewClient(client).WriteTxnMarkers(ctx, marker)
	if err != nil {
		return err
	}
	answer, ok := written[p.ID].Topics[p.Topic].Partitions[p.Partition]
	if !ok {
		return errors.New("the broker's answer does not say")
	}
	return answer.Err
}
