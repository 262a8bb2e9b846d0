// Command transactional marks orders as paid, each once, and announces it: order,
// event and key are committed together.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("BROKERS"), os.Getenv("DATABASE_URL")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, brokers, url string) error {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	config.MaxConns = 17 // one more than consumer.Config.Concurrency, which is 16 by default
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	producer, err := kgo.NewClient(kgo.SeedBrokers(brokers))
	if err != nil {
		return err
	}
	defer producer.Close()
	deadLetter, err := consumer.DeadLetterTopic(producer, "orders.dead-letter")
	if err != nil {
		return err
	}
	store, err := postgres.NewTransactional(pool, postgres.Options{})
	if err != nil {
		return err
	}
	processor, err := idempotency.New(idempotency.Options{Store: store, DeadLetter: deadLetter})
	if err != nil {
		return err
	}
	defer processor.Close()
	c, err := consumer.New(consumer.Config{
		Brokers: []string{brokers}, Group: "orders", Topics: []string{"payments"},
		Once:    consumer.Once{Runner: processor},
		Handler: markPaid,
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

func markPaid(ctx context.Context, r *kgo.Record) error {
	tx, order := postgres.Tx(ctx), string(r.Key)
	tag, err := tx.Exec(ctx, `UPDATE orders SET status = 'PAID' WHERE id = $1`, order)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return idempotency.Terminal(fmt.Errorf("there is no order %s", order))
	}
	_, err = outbox.Write(ctx, tx, outbox.Event{
		AggregateType: "order", AggregateID: order, Type: "OrderReadyForShipment", Payload: order,
	})
	return err
}
