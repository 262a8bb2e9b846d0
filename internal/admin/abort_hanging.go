package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

// Start is the place of an open transaction's first record in a partition.
type Start struct {
	Topic     string
	Partition int32
	Offset    int64
}

// String implements fmt.Stringer.
func (s Start) String() string {
	return fmt.Sprintf("offset %d of partition %d of topic %q", s.Offset, s.Partition, s.Topic)
}

// command is our command to end the transaction.
func (s Start) command() string {
	return fmt.Sprintf("cdc-outbox txn abort --topic %s --partition %d --start-offset %d --yes", s.Topic, s.Partition, s.Offset)
}

// AbortHanging ends the transaction beginning there in the partition, if no
// coordinator has it open, and writes the end to the partition as a coordinator
// would. Without yes it only reports.
func AbortHanging(ctx context.Context, cfg *config.Config, at Start, yes bool) (Transactions, error) {
	c, ours, err := transactional(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer c.client.Close()
	return c.abortHanging(ctx, at, ours, settled, yes)
}

// abortPatience bounds the questions to brokers about a hanging transaction.
const abortPatience = 30 * time.Second

func (c *cluster) abortHanging(ctx context.Context, at Start, ours string, silent time.Duration, yes bool) (Transactions, error) {
	ctx, cancel := context.WithTimeout(ctx, abortPatience)
	defer cancel()
	producer, err := c.producerAt(ctx, at)
	if err != nil {
		return nil, err
	}
	if err := c.allCoordinators(ctx); err != nil {
		return nil, err
	}
	if err := c.coordinated(ctx, producer.ID, ours); err != nil {
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
	if err := c.abort(ctx, producer); err != nil {
		return Transactions{t}, err
	}
	t.Remedy, t.Aborted = "", true
	return Transactions{t}, nil
}

// producerAt returns the producer of the open transaction beginning there.
func (c *cluster) producerAt(ctx context.Context, at Start) (p broker.Producer, err error) {
	producers, err := broker.ProducersOf(ctx, c.client, at.Topic, at.Partition)
	if err != nil {
		err = fmt.Errorf("describe the producers of topic %q: %w", at.Topic, err)
		if errors.Is(err, kerr.TopicAuthorizationFailed) {
			err = failure.Configf(c.cfg.Tools().Allow("Read", at.Topic), "%w", err)
		}
		return p, err
	}
	for _, p := range producers {
		if p.Open == at.Offset {
			return p, nil
		}
	}
	return p, failure.Configf("take topic, partition and offset from 'cdc-outbox txn list'", "no open transaction begins at %s", at)
}

// allCoordinators returns an error unless each partition of the coordinators' topic has a
// leader. Without a leader, no broker tells of the partition's transactions: sound, they
// would look as if they hung.
func (c *cluster) allCoordinators(ctx context.Context) error {
	away, err := broker.CoordinatorsAway(ctx, c.client)
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return failure.Configf(c.cfg.Tools().Allow("Describe", broker.TransactionTopic), "%w", err)
	case err != nil:
		return err
	case away > 0:
		return fmt.Errorf("%d partitions of topic %s have no leader, so that no broker tells of their transactions: "+
			"this one may be well; ask again when all have one", away, broker.TransactionTopic)
	}
	return nil
}

// coordinated returns an error if a coordinator has a transaction of the
// producer open. The coordinator ends that transaction in all of its partitions;
// a partition must not be ended alone.
func (c *cluster) coordinated(ctx context.Context, producer int64, ours string) error {
	open, err := broker.OpenTransactions(ctx, c.client, producer)
	if err != nil {
		return fmt.Errorf("list transactions: %w", err)
	}
	for _, t := range open {
		if t.Producer != producer {
			continue
		}
		remedy := "stop or restart the program that has this id: its next start ends it, and so do brokers after its timeout"
		if t.ID == ours {
			remedy = "cdc-outbox txn abort --yes"
		}
		return failure.Configf(remedy, "the transaction does not hang: its coordinator has it open under the transactional id %q", t.ID)
	}
	return nil
}

// abort ends the producer's transaction in its partition.
func (c *cluster) abort(ctx context.Context, p broker.Producer) error {
	err := broker.AbortIn(ctx, c.client, p)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("write the end of the transaction: %w", err)
	if errors.Is(err, kerr.ClusterAuthorizationFailed) {
		return failure.Configf(c.cfg.Tools().Allow("ClusterAction", "")+", for as long as it takes; or abort it as an administrator: "+
			c.cfg.Tools().Abort(p.Topic, p.Partition, p.Open), "%w", err)
	}
	return err
}
