package admin

import (
	"context"
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

const (
	// transactionFeature is the cluster's version of transactions. From 2 on, a late
	// request of an aborted transaction cannot become part of the next (KIP-890).
	transactionFeature = "transaction.version"
	safeTransactions   = 2
)

// transactions checks the cluster's fitness for exactly-once delivery.
func (d *doctor) transactions(ctx context.Context, c *cluster) {
	const name = "kafka.transactions"
	if d.cfg.Sink.Kafka.Delivery != sink.DeliveryExactlyOnce {
		d.skip(name, "sink.kafka.delivery is "+d.cfg.Sink.Kafka.Delivery)
		return
	}
	id, err := wiring.TransactionalID(d.cfg)
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, c.patience)
		err = sink.Usable(limited, c.client, c.cfg, id)
		cancel()
	}
	if err != nil {
		d.fail(name, err)
		return
	}
	d.ok(name, "transactional id %q may be used", id)
	d.transactionVersion(ctx, c)
	d.transactionCopies(ctx, c)
	d.heldBack(ctx, c, id)
}

// heldBack warns of transactions holding consumers back for longer than any of
// ours may last.
func (d *doctor) heldBack(ctx context.Context, c *cluster, ours string) {
	const name = "kafka.open_transactions"
	open, err := c.open(ctx, ours)
	long := open.long()
	for _, t := range long {
		d.warn(name, t.ending(), "%s", t.holding())
	}
	switch {
	case isPartly(err):
		d.warn(name, failure.RemedyOf(err), "%v", err)
	case err != nil:
		d.skip(name, err.Error())
	case len(long) == 0:
		d.ok(name, "no transaction has been open for a minute")
	}
}

func (d *doctor) transactionVersion(ctx context.Context, c *cluster) {
	const name = "kafka.transaction_version"
	level, err := broker.Feature(ctx, c.client, transactionFeature)
	if err != nil {
		d.fail(name, fmt.Errorf("ask for the cluster's features: %w", err))
		return
	}
	if level < safeTransactions {
		d.warn(name, "Apache Kafka 4.1 or later: "+c.cfg.Tools().Upgrade(transactionFeature, safeTransactions),
			"%s is %d: brokers may take a late request of an aborted transaction for a part of the next one", transactionFeature, level)
		return
	}
	d.ok(name, "%s is %d", transactionFeature, level)
}

// transactionCopies counts the copies of the brokers' own notes of transactions.
// It skips a missing topic.
func (d *doctor) transactionCopies(ctx context.Context, c *cluster) {
	const name = "kafka.transaction_copies"
	state, err := c.lookup(ctx, broker.TransactionTopic)
	if err != nil {
		d.skip(name, fmt.Sprintf("%s: %v", broker.TransactionTopic, err))
		return
	}
	least, err := c.leastInSync(ctx, broker.TransactionTopic)
	if err != nil {
		d.skip(name, err.Error())
		return
	}
	if v := judgeCopies(state.replicas, least); v != enoughCopies {
		d.warn(name, "three replicas and "+minInSync+" 2: kafka-reassign-partitions.sh, and "+c.cfg.Tools().Set(broker.TransactionTopic, minInSync+"=2"),
			"%s has %d replicas and %s %d: with one broker's disk the outcome of transactions is lost, so that events may be lost or repeated",
			broker.TransactionTopic, state.replicas, minInSync, least)
		return
	}
	d.ok(name, "%s has %d replicas, of which %d must be in sync", broker.TransactionTopic, state.replicas, least)
}
