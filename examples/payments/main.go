// Command payments takes payments, and ships what is paid, each once:
//
//	payments pay 7 ──▶ PostgreSQL ──▶ cdc-outbox ──▶ Kafka ──▶ payments ship ──▶ PostgreSQL
//	                   payment and event,                                        one shipment,
//	                   in one transaction                                        with the key of its event
//
// Whatever is killed in between, at whatever moment, and started again.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// tables are the business's. The table shipments does not refuse an order's
// second row: the library sees to it that none comes.
const tables = `
	CREATE TABLE IF NOT EXISTS payments (order_id text PRIMARY KEY);
	CREATE TABLE IF NOT EXISTS shipments (order_id text NOT NULL);
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	config.MaxConns = 17 // one more than consumer.Config.Concurrency, which is 16 by default
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := createTables(ctx, pool); err != nil {
		return err
	}
	switch {
	case len(args) == 2 && args[0] == "pay":
		return pay(ctx, pool, args[1])
	case len(args) == 1 && args[0] == "ship":
		return ship(ctx, pool, os.Getenv("BROKERS"))
	}
	return errors.New("usage: payments pay ORDER, or payments ship")
}

func createTables(ctx context.Context, pool *pgxpool.Pool) error {
	keys, err := postgres.Schema(postgres.Options{})
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, tables+outbox.Schema+";"+keys)
	return err
}

// pay takes the payment of an order. It announces the payment in the same
// transaction: no payment is without its event, and no event without its
// payment.
func pay(ctx context.Context, pool *pgxpool.Pool, order string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		paid, err := tx.Exec(ctx, `INSERT INTO payments (order_id) VALUES ($1) ON CONFLICT DO NOTHING`, order)
		if err != nil {
			return err
		}
		if paid.RowsAffected() == 0 {
			log.Print("this order was paid before")
			return nil
		}
		log.Print("the order is paid")
		_, err = outbox.Write(ctx, tx, outbox.Event{
			AggregateType: "payment", AggregateID: order, Type: "OrderPaid", Payload: map[string]string{"order": order},
		})
		return err
	})
}

// ship consumes the events until ctx ends. A handler's writes through its
// transaction are committed together with the event's key, or not at all.
func ship(ctx context.Context, pool *pgxpool.Pool, brokers string) error {
	store, err := postgres.NewTransactional(pool, postgres.Options{})
	if err != nil {
		return err
	}
	// No message is given up here, so there are no dead letters.
	processor, err := idempotency.New(idempotency.Options{Store: store, MaxAttempts: -1})
	if err != nil {
		return err
	}
	defer processor.Close()
	c, err := consumer.New(consumer.Config{
		Brokers: []string{brokers}, Group: "shipping", Topics: []string{"outbox.event.payment"},
		Once:    consumer.Once{Runner: processor},
		Handler: shipOrder,
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

func shipOrder(ctx context.Context, r *kgo.Record) error {
	if _, err := postgres.Tx(ctx).Exec(ctx, `INSERT INTO shipments (order_id) VALUES ($1)`, string(r.Key)); err != nil {
		return err
	}
	log.Printf("order %s ships", r.Key)
	return nil
}
