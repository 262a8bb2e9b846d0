package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// Start is where an open transaction has its first record of a partition.
type Start struct {
	Topic     string
	Partition int32
	Offset    int64
}

// String implements fmt.Stringer.
func (s Start) String() string {
	return fmt.Sprintf("offset %d of partition %d of topic %q", s.Offset, s.Partition, s.Topic)
}

// command is the one of ours that ends the transaction.
func (s Start) command() string {
	return fmt.Sprintf("cdc-outbox txn abort --topic %s --partition %d --start-offset %d --yes", s.Topic, s.Partition, s.Offset)
}

// AbortHanging ends the transaction that begins there in the partition, if no
// coordinator has it open; without yes it only says so. It writes the end of the
// transaction to that partition, as a coordinator would.
func AbortHanging(ctx context.Context, cfg *config.Config, at Start, yes bool) (Transactions, error) {
	c, ours, err := transactional(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer c.client.Close()
	return c.abortHanging(ctx, at, ours, settled, yes)
}

// abortPatience bounds what is asked of brokers to abort a hanging transaction.
const abortPatience = 30 * time.Second

func (c *cluster) abortHanging(ctx context.Context, at Start, ours string, silent time.Duration, yes bool) (Transactions, error) {
	ctx, cancel := context.WithTimeout(ctx, abortPatience)
	defer cancel()
	admin := broker.Admin(c.client)
	producer, err := c.producerAt(ctx, admin, at)
	if err != nil {
		return nil, err
	}
	if err := c.allCoordinators(ctx, admin); err != nil {
		return nil, err
	}
	if err := coordinated(ctx, admin, producer.ProducerID, ours); err != nil {
		return nil, err
	}
	t, ok := hangs(producer, nil, silent)
	if !ok {
		return nil, failure.Configf("ask 'cdc-outbox txn list' again when its producer has been silent for a minute",
			"the transaction at %s may just have begun", at)
	}
	if !yes {
		return Transactions{t}, failure.Configf("repeat it with --yes", "nothing was aborted")
	}
	if err := c.abort(ctx, admin, producer); err != nil {
		return Transactions{t}, err
	}
	t.Remedy, t.Aborted = "", true
	return Transactions{t}, nil
}

// producerAt returns whose open transaction begins there.
func (c *cluster) producerAt(ctx context.Context, admin *kadm.Client, at Start) (p kadm.DescribedProducer, err error) {
	var where kadm.TopicsSet
	where.Add(at.Topic, at.Partition)
	described, err := admin.DescribeProducers(ctx, where)
	partition := described[at.Topic].Partitions[at.Partition]
	if err = cmp.Or(err, partition.Err); err != nil {
		err = fmt.Errorf("describe the producers of topic %q: %w", at.Topic, err)
		if errors.Is(err, kerr.TopicAuthorizationFailed) {
			err = failure.Configf(sink.AllowCommand(c.cfg, "Read", at.Topic), "%w", err)
		}
		return p, err
	}
	for _, p := range partition.ActiveProducers {
		if p.CurrentTxnStartOffset == at.Offset {
			return p, nil
		}
	}
	return p, failure.Configf("take topic, partition and offset from 'cdc-outbox txn list'", "no open transaction begins at %s", at)
}

// transactionState is the topic in which coordinators keep transactions. The
// leader of a partition is the coordinator of the partition's transactions.
const transactionState = "__transaction_state"

// allCoordinators returns an error unless each partition of that topic has a leader.
// While one has none, no broker tells of its transactions, which are well and only
// look as if they hung.
func (c *cluster) allCoordinators(ctx context.Context, admin *kadm.Client) error {
	away, err := coordinatorsAway(ctx, admin)
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return failure.Configf(sink.AllowCommand(c.cfg, "Describe", transactionState), "%w", err)
	case err != nil:
		return err
	case away > 0:
		return fmt.Errorf("%d partitions of topic %s have no leader, so that no broker tells of their transactions: "+
			"this one may be well; ask again when all have one", away, transactionState)
	}
	return nil
}

// coordinatorsAway is how many partitions of that topic have no leader. Where there
// is no such topic, there is no coordinator, and nothing that one could tell.
func coordinatorsAway(ctx context.Context, admin *kadm.Client) (away int, err error) {
	topics, err := admin.ListTopics(ctx, transactionState)
	if err = cmp.Or(err, topics[transactionState].Err); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return 0, fmt.Errorf("ask for the leaders of topic %s: %w", transactionState, err)
	}
	for _, p := range topics[transactionState].Partitions {
		if p.Err != nil || p.Leader < 0 {
			away++
		}
	}
	return away, nil
}

// coordinated returns an error if a coordinator has a transaction of the
// producer open: it ends that in all of its partitions. No partition must be
// ended alone.
func coordinated(ctx context.Context, admin *kadm.Client, producer int64, ours string) error {
	listed, err := admin.ListTransactions(ctx, []int64{producer}, openStates)
	if err != nil {
		return fmt.Errorf("list transactions: %w", err)
	}
	for _, l := range listed {
		if l.ProducerID != producer {
			continue
		}
		remedy := "stop or restart the program that has this id: its next start ends it, and so do brokers after its timeout"
		if l.TxnID == ours {
			remedy = "cdc-outbox txn abort --yes"
		}
		return failure.Configf(remedy, "the transaction does not hang: its coordinator has it open under the transactional id %q", l.TxnID)
	}
	return nil
}

// abort writes the end of the producer's transaction to its partition. The epoch of
// the coordinator is the one that it had last there, as Kafka's own tool has it, so
// that coordinators of now are not fenced off.
func (c *cluster) abort(ctx context.Context, admin *kadm.Client, p kadm.DescribedProducer) error {
	marker := kadm.TxnMarkers{ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch, CoordinatorEpoch: max(0, p.CoordinatorEpoch)}
	marker.Topics.Add(p.Topic, p.Partition)
	written, err := admin.WriteTxnMarkers(ctx, marker)
	if err == nil {
		answer, ok := written[p.ProducerID].Topics[p.Topic].Partitions[p.Partition]
		if err = answer.Err; !ok {
			err = errors.New("the broker's answer does not say")
		}
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("write the end of the transaction: %w", err)
	if errors.Is(err, kerr.ClusterAuthorizationFailed) {
		return failure.Configf(sink.AllowCommand(c.cfg, "ClusterAction", "")+", for as long as it takes; or abort it as an administrator: "+
			sink.AbortCommand(c.cfg, p.Topic, p.Partition, p.CurrentTxnStartOffset), "%w", err)
	}
	return err
}
