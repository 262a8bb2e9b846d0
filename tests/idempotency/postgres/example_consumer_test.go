package postgres_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/guard"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// consumePayments makes orders PAID, and announces it, once per payment.
func consumePayments(ctx context.Context, brokers []string, pool *pgxpool.Pool, deadLetter func(context.Context, idempotency.DeadLetter) error) error {
	store, err := postgres.NewTransactional(pool, postgres.Options{})
	if err != nil {
		return err
	}
	runner, err := idempotency.New(idempotency.Options{Store: store, DeadLetter: deadLetter})
	if err != nil {
		return err
	}
	defer runner.Close()
	c, err := consumer.New(consumer.Config{
		Brokers: brokers, Group: "orders", Topics: []string{"payments"},
		Once:    consumer.Once{Scope: "orders", Runner: runner},
		Handler: markPaid,
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// markPaid writes through the transaction that also completes the key.
func markPaid(ctx context.Context, r *kgo.Record) error {
	tx, orderID := postgres.Tx(ctx), string(r.Key)
	tag, err := tx.Exec(ctx, `UPDATE orders SET status = 'PAID' WHERE id = $1`, orderID)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return idempotency.Terminal(fmt.Errorf("there is no order %s", orderID))
	}
	_, err = outbox.Write(ctx, tx, outbox.Event{
		AggregateType: "order", AggregateID: orderID, Type: "OrderReadyForShipment", Payload: orderID,
	})
	return err
}

var paid = guard.Transition{
	Table: "orders", Key: "id", Status: "status",
	From: []string{"PENDING"}, To: "PAID", Beyond: []string{"SHIPPED"},
}

// markPaidGuarded needs no key at all: the order itself knows.
func markPaidGuarded(ctx context.Context, tx pgx.Tx, orderID string) error {
	changed, err := paid.Apply(ctx, guard.PGX(tx), orderID)
	if err != nil || !changed {
		return err
	}
	_, err = outbox.Write(ctx, tx, outbox.Event{
		AggregateType: "order", AggregateID: orderID, Type: "OrderReadyForShipment", Payload: orderID,
	})
	return err
}

// A payment is delivered twice, and another is for no order. Before them,
// somebody paid order o-2 without a key, behind a guard.
func Example_consumer() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ddl, err := postgres.Schema(postgres.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	pool := exampleDatabase(outbox.Schema, ddl,
		`CREATE TABLE orders AS SELECT unnest(ARRAY['o-1', 'o-2']) AS id, 'PENDING' AS status`)
	defer pool.Close()
	if err := paid.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return markPaidGuarded(ctx, tx, "o-2") }); err != nil {
			fmt.Println(err)
			return
		}
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "payments", "orders.dead-letter"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("payments"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	for _, p := range []struct{ id, order string }{{"p-1", "o-1"}, {"p-1", "o-1"}, {"p-2", "o-9"}, {"", "o-1"}} {
		payment := &kgo.Record{Key: []byte(p.order), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(p.id)}}}
		if err := client.ProduceSync(ctx, payment).FirstErr(); err != nil {
			fmt.Println(err)
			return
		}
	}
	deadLetter, err := consumer.DeadLetterTopic(client, "orders.dead-letter")
	if err != nil {
		fmt.Println(err)
		return
	}
	err = consumePayments(ctx, cluster.ListenAddrs(), pool, lastDeadLetter(deadLetter, stop))
	fmt.Println(err)
	var status string
	var events int
	err = pool.QueryRow(context.Background(), `SELECT string_agg(status, ' '), (SELECT count(*) FROM outbox) FROM orders`).
		Scan(&status, &events)
	fmt.Println(status, "with", events, "events", err)
	// Output:
	// dead letter: there is no order o-9
	// dead letter: bad idempotency key: the id is empty
	// <nil>
	// PAID PAID with 2 events <nil>
}

// lastDeadLetter ends the example with the record without an id.
func lastDeadLetter(next func(context.Context, idempotency.DeadLetter) error, stop func()) func(context.Context, idempotency.DeadLetter) error {
	return func(ctx context.Context, d idempotency.DeadLetter) error {
		fmt.Println("dead letter:", d.Reason)
		if errors.Is(d.Reason, storage.ErrBadKey) {
			defer stop()
		}
		return next(ctx, d)
	}
}
