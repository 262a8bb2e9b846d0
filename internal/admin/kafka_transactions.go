package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// Transaction is an open Kafka transaction, which holds back read_committed consumers.
type Transaction struct {
	ID string `json:"id"`
	// Ours is set for the pipeline's own.
	Ours    bool          `json:"ours"`
	State   string        `json:"state"`
	Age     time.Duration `json:"-"` // 0 where the broker does not tell
	Timeout time.Duration `json:"-"`
	Topics  []string      `json:"topics"`
	Aborted bool          `json:"aborted"`
	// Remedy ends a transaction nothing else ends: shown by no coordinator, or not ended by
	// its coordinator.
	Remedy string `json:"remedy,omitempty"`
}

func (t Transaction) compare(o Transaction) int {
	return cmp.Or(cmp.Compare(t.Topics[0], o.Topics[0]), cmp.Compare(t.ID, o.ID), cmp.Compare(t.Remedy, o.Remedy))
}

// MarshalJSON writes durations in seconds.
func (t Transaction) MarshalJSON() ([]byte, error) {
	type plain Transaction
	return json.Marshal(struct {
		plain
		Age     float64 `json:"age_seconds"`
		Timeout float64 `json:"timeout_seconds"`
	}{plain(t), t.Age.Seconds(), t.Timeout.Seconds()})
}

// holding describes the transaction's effect.
func (t Transaction) holding() string {
	return fmt.Sprintf("%s has held consumers back for %s, in %v", t.ID, t.Age.Round(time.Second), t.Topics)
}

// ending describes the transaction's end.
func (t Transaction) ending() string {
	switch {
	case t.Remedy != "":
		return t.Remedy
	case t.Ours:
		return "cdc-outbox txn abort --yes"
	}
	return "find out whose it is; its owner's next start ends it, and so do brokers after its timeout"
}

// line describes the transaction in a report.
func (t Transaction) line() string {
	age, done := t.Age.Round(time.Second), ""
	if t.Aborted {
		done = "; aborted now"
	}
	if t.State == stateHanging {
		line := fmt.Sprintf("%s (no coordinator shows it to us): silent for %s, in %v%s", t.ID, age, t.Topics, done)
		if t.Remedy != "" {
			line += "; " + t.Remedy
		}
		return line
	}
	whose := "another program's"
	if t.Ours {
		whose = "this pipeline's"
	}
	line := fmt.Sprintf("%s (%s): %s for %s of at most %s, in %v%s", t.ID, whose, t.State, age, t.Timeout, t.Topics, done)
	if t.Remedy != "" {
		line += "; " + t.Remedy
	}
	return line
}

// Transactions are those of a cluster.
type Transactions []Transaction

// WriteText implements the report of a verb.
func (ts Transactions) WriteText(w io.Writer) error {
	if len(ts) == 0 {
		_, err := fmt.Fprintln(w, "no transaction is open")
		return err
	}
	for _, t := range ts {
		if _, err := fmt.Fprintln(w, t.line()); err != nil {
			return err
		}
	}
	return nil
}

// long are those open for longer than any of ours may last.
func (ts Transactions) long() (long Transactions) {
	for _, t := range ts {
		if t.Age >= settled {
			long = append(long, t)
		}
	}
	return long
}

// OpenTransactions returns the unfinished transactions of the cluster, as far as the
// brokers show them to us. With an error there may be some, too: those known to the
// brokers that answered.
func OpenTransactions(ctx context.Context, cfg *config.Config) (Transactions, error) {
	c, id, err := transactional(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer c.client.Close()
	return c.open(ctx, id)
}

// AbortTransaction aborts the pipeline's own transaction if open; without yes it
// only reports. A running connector then begins anew, and loses nothing.
func AbortTransaction(ctx context.Context, cfg *config.Config, yes bool) (Transactions, error) {
	c, id, err := transactional(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer c.client.Close()
	all, err := c.open(ctx, id)
	if err != nil && !isPartly(err) {
		return nil, err
	}
	ours := slices.DeleteFunc(all, func(t Transaction) bool { return !t.Ours })
	if len(ours) == 0 {
		return nil, err
	}
	if !yes {
		return ours, failure.Configf("repeat it with --yes", "nothing was aborted")
	}
	if err := fence(ctx, cfg, ""); err != nil {
		return ours, err
	}
	ours[0].Aborted = true
	return ours, nil
}

// transactional connects to the cluster of a pipeline with a transactional id.
func transactional(ctx context.Context, cfg *config.Config) (c *cluster, id string, err error) {
	if cfg.Sink.Kafka == nil || cfg.Sink.Kafka.Delivery != sink.DeliveryExactlyOnce {
		return nil, "", failure.Configf("name the configuration of a connector that has, with -c", "the connector of this configuration has no Kafka transactions: sink.kafka.delivery is not exactly_once")
	}
	if id, err = wiring.TransactionalID(cfg); err != nil {
		return nil, "", err
	}
	c = newCluster(cfg)
	return c, id, c.connect(ctx)
}

// open lists the unfinished transactions. With an error that isPartly it lists those known
// to the brokers that answered.
func (c *cluster) open(ctx context.Context, ours string) (all Transactions, err error) {
	missing := &unasked{}
	listed, err := broker.OpenTransactions(ctx, c.client)
	if err := missing.take(err); err != nil {
		return nil, fmt.Errorf("list transactions: %w", err)
	}
	described, err := broker.DescribeTransactions(ctx, c.client, listed)
	if err := missing.take(err); err != nil {
		return nil, fmt.Errorf("describe transactions: %w", err)
	}
	for _, d := range described {
		all = append(all, c.transaction(d, ours))
	}
	if len(missing.of) > 0 { // one of their transactions would look as if it hung
		return all, missing.err(c.cfg)
	}
	var known []int64
	for _, l := range listed {
		known = append(known, l.Producer)
	}
	hanging, err := c.hanging(ctx, known, settled)
	return append(all, hanging...), err
}

// transaction is a transaction described by its coordinator.
func (c *cluster) transaction(d broker.Transaction, ours string) Transaction {
	t := Transaction{ID: d.ID, Ours: d.ID == ours, State: d.State, Timeout: d.Timeout, Topics: d.Topics}
	if !d.Began.IsZero() {
		t.Age = max(0, time.Since(d.Began))
	}
	if t.State != "Ongoing" && t.Age >= settled { // ended already: no claim can end it
		t.Remedy = c.cfg.Tools().Coordinator(t.ID)
	}
	return t
}
