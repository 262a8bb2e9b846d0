package outbox_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// A message needs no table: it is in the WAL only, for a connector in message
// mode. Here a slot of test_decoding shows it is there.
func Example_emit() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, exampleURL())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `SELECT pg_create_logical_replication_slot('example_emit', 'test_decoding')`)
	if err != nil {
		fmt.Println(err)
		return
	}

	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := outbox.Emit(ctx, tx, outbox.Event{
			AggregateType: "order", AggregateID: "42", Type: "OrderPlaced", Payload: Order{ID: 42, Status: "placed"},
		})
		return err
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	show(ctx, conn, `SELECT substring(data FROM '^message: transactional: 1 prefix: \w+')
		FROM pg_logical_slot_get_changes('example_emit', NULL, NULL) WHERE data LIKE 'message%'`)
	show(ctx, conn, `SELECT 'slot dropped' || pg_drop_replication_slot('example_emit')`)
	// Output:
	// message: transactional: 1 prefix: outbox
	// slot dropped
}

// A Writer is for a table with other names, and for payloads that are not JSON.
func Example_new() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, exampleURL(`CREATE SCHEMA shop`, `CREATE TABLE shop.events (
		id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload bytea)`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close(ctx)

	w, err := outbox.New(outbox.Options{
		Table:   outbox.Table{Schema: "shop", Name: "events", Columns: outbox.SnakeCase(), NoHeaders: true},
		Payload: outbox.Bytes,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := w.Write(ctx, outbox.PGX(tx), outbox.Event{
			AggregateType: "order", AggregateID: "42", Type: "OrderPlaced", Payload: []byte{0x08, 0x2a},
		})
		return err
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	show(ctx, conn, `SELECT concat_ws(' ', aggregate_type, aggregate_id, event_type, payload) FROM shop.events`)
	// Output: order 42 OrderPlaced \x082a
}

// Partitions are created ahead, for today and tomorrow say, once a day.
func Example_tablePartition() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, exampleURL(outbox.PartitionedSchema))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close(ctx)

	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, at := range []time.Time{now, now.AddDate(0, 0, 1)} {
		p, err := outbox.Table{}.Partition(outbox.Daily, at)
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := conn.Exec(ctx, p.SQL()); err != nil {
			fmt.Println(err)
			return
		}
	}

	show(ctx, conn, `SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'outbox'::regclass ORDER BY 1`)
	// Output:
	// outbox_default
	// outbox_p20260101
	// outbox_p20260102
}
