package postgres_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// exampleDatabase returns a pool on a database where the statements were run.
func exampleDatabase(statements ...string) *pgxpool.Pool {
	url, err := pgtest.ExampleDatabase(statements...)
	if err != nil {
		panic(err)
	}
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		panic(err)
	}
	return pool
}

// A payment is delivered three times. The order is paid, and the event written,
// once: with the key's completion, in a single transaction.
func Example_transactional() {
	ctx := context.Background()
	pool := exampleDatabase(outbox.Schema, `CREATE TABLE orders AS SELECT 1 AS id, 'PENDING' AS status`)
	defer pool.Close()

	ddl, err := postgres.Schema(postgres.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := pool.Exec(ctx, ddl); err != nil { // or by your migrations
		fmt.Println(err)
		return
	}
	store, err := postgres.NewTransactional(pool, postgres.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	runner, err := idempotency.New(idempotency.Options{
		Store: store,
		DeadLetter: func(_ context.Context, d idempotency.DeadLetter) error {
			fmt.Println("given up:", d.Message.Key, d.Reason) // in earnest: a topic's ack
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	defer runner.Close()
	markPaid := func(ctx context.Context) ([]byte, error) {
		tx := postgres.Tx(ctx)
		if _, err := tx.Exec(ctx, `UPDATE orders SET status = 'PAID' WHERE id = 1`); err != nil {
			return nil, err
		}
		_, err := outbox.Write(ctx, tx, outbox.Event{
			AggregateType: "order", AggregateID: "1", Type: "OrderReadyForShipment", Payload: map[string]int{"order": 1},
		})
		return []byte("paid"), err
	}
	for range 3 {
		m := idempotency.Message{Key: storage.Key{Scope: "orders", ID: "payment-7"}}
		result, err := runner.Run(ctx, m, markPaid)
		fmt.Println(result.Disposition, string(result.Value), err)
	}
	var events int
	err = pool.QueryRow(ctx, `SELECT count(*) FROM outbox`).Scan(&events)
	fmt.Println(events, "event", err)
	// Output:
	// handled paid <nil>
	// skipped paid <nil>
	// skipped paid <nil>
	// 1 event <nil>
}

// A store for a Processor, with the checks at the start and the sweep somebody
// must do from time to time.
func Example_store() {
	ctx := context.Background()
	ddl, err := postgres.Schema(postgres.Options{Table: "app.keys", Partitioned: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	pool := exampleDatabase(`CREATE SCHEMA app`, ddl)
	defer pool.Close()

	store, err := postgres.New(pool, postgres.Options{Table: "app.keys", Partitioned: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := store.Check(ctx); err != nil { // warnings are for the log
		fmt.Println(err)
		return
	}
	processor, err := idempotency.New(idempotency.Options{Store: store, MaxAttempts: -1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer processor.Close()
	m := idempotency.Message{Key: storage.Key{Scope: "mails", ID: "0190163d-8694-739b-aea5-966c26f8ad90"}}
	for range 2 {
		result, err := processor.Run(ctx, m, func(context.Context) ([]byte, error) { return []byte("sent"), nil })
		fmt.Println(result.Disposition, string(result.Value), err)
	}
	fmt.Println(store.Sweep(ctx, 0))
	// Output:
	// handled sent <nil>
	// skipped sent <nil>
	// 0 <nil>
}
