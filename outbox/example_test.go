package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// Order is what a service of the examples keeps, and what it tells others.
type Order struct {
	ID     int    `json:"id"`
	Status string `json:"status"`
}

// exampleURL is that of a database with a business table and what ddl creates.
func exampleURL(ctx context.Context, ddl ...string) string {
	url, err := pgtest.ExampleDatabase()
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return ""
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return ""
	}
	defer conn.Close(ctx)
	for _, sql := range append(ddl, `CREATE TABLE orders (id int PRIMARY KEY, status text NOT NULL)`) {
		if _, err := conn.Exec(ctx, sql); err != nil {
			fmt.Fprintln(os.Stdout, err)
		}
	}
	return url
}

// show prints the one column of a query.
func show(ctx context.Context, conn *pgx.Conn, query string) {
	rows, err := conn.Query(ctx, query)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
	}
	for _, line := range lines {
		fmt.Fprintln(os.Stdout, line)
	}
}

// With pgx: the business row and the event are committed together.
func ExampleWrite() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, exampleURL(ctx, outbox.Schema))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close(ctx)

	order := Order{ID: 42, Status: "placed"}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO orders (id, status) VALUES ($1, $2)`, order.ID, order.Status)
		if err != nil {
			return err
		}
		_, err = outbox.Write(ctx, tx, outbox.Event{
			AggregateType: "order",
			AggregateID:   fmt.Sprint(order.ID),
			Type:          "OrderPlaced",
			Payload:       order,
			Headers:       map[string]string{"tenant": "acme"},
		})
		return err
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	show(ctx, conn, `SELECT concat_ws(' ', aggregatetype, aggregateid, type, payload, headers) FROM outbox`)
	// Output: order 42 OrderPlaced {"id": 42, "status": "placed"} {"tenant": "acme"}
}

// With database/sql; the driver may be pgx's or lib/pq.
func ExampleWriteSQL() {
	ctx := context.Background()
	db, err := sql.Open("pgx", exampleURL(ctx, outbox.Schema))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()

	place := func(order Order) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after Commit
		_, err = tx.ExecContext(ctx, `INSERT INTO orders (id, status) VALUES ($1, $2)`, order.ID, order.Status)
		if err != nil {
			return err
		}
		_, err = outbox.WriteSQL(ctx, tx, outbox.Event{
			AggregateType: "order",
			AggregateID:   fmt.Sprint(order.ID),
			Type:          "OrderPlaced",
			Payload:       order,
		})
		if err != nil {
			return err
		}
		return tx.Commit()
	}
	if err := place(Order{ID: 42, Status: "placed"}); err != nil {
		fmt.Println(err)
		return
	}

	var event string
	err = db.QueryRowContext(ctx, `SELECT concat_ws(' ', aggregatetype, aggregateid, type, payload) FROM outbox`).Scan(&event)
	fmt.Println(event, err)
	// Output: order 42 OrderPlaced {"id": 42, "status": "placed"} <nil>
}

// Any number of events are written with one statement, in their order.
func ExampleWrite_bulk() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, exampleURL(ctx, outbox.Schema))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close(ctx)

	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var events []outbox.Event
		for i := range 1000 {
			events = append(events, outbox.Event{
				AggregateType: "order", AggregateID: fmt.Sprint(i), Type: "OrderExpired", Payload: Order{ID: i, Status: "expired"},
			})
		}
		ids, err := outbox.Write(ctx, tx, events...)
		if err != nil {
			return err
		}
		fmt.Println(len(ids), "ids, of version", ids[0].Version())
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	show(ctx, conn, `SELECT count(*) || ' rows' FROM outbox`)
	// Output:
	// 1000 ids, of version VERSION_7
	// 1000 rows
}

// A message needs no table: it is in the WAL only, for a connector in message
// mode. Here a slot of test_decoding shows that it is there.
func ExampleEmit() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, exampleURL(ctx))
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
func ExampleNew() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, exampleURL(ctx, `CREATE SCHEMA shop`, `CREATE TABLE shop.events (
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

// What is wrong with events is told before the database is asked, all at once.
func ExampleInvalidError() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, exampleURL(ctx))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close(ctx)

	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := outbox.Write(ctx, tx,
			outbox.Event{AggregateType: "order", AggregateID: "42", Payload: json.RawMessage(`{"id": 42`)},
			outbox.Event{AggregateType: "order", AggregateID: "42", Type: "OrderPaid", Payload: 1, Headers: map[string]string{"id": "7"}},
		)
		return err
	})
	var invalid *outbox.InvalidError
	if errors.As(err, &invalid) {
		for _, problem := range invalid.Problems {
			fmt.Println(problem)
		}
	}
	// Output:
	// event 0: Type is empty
	// event 0: Payload is not valid JSON
	// event 1: Headers["id"] is set by the connector: choose another name
}

// With an id of its own, an event can be written again when a commit got no
// answer: at most one of the two is carried out.
func ExampleNewID() {
	id, err := outbox.NewID()
	if err != nil {
		fmt.Println(err)
		return
	}
	event := outbox.Event{ID: id, AggregateType: "order", AggregateID: "42", Type: "OrderPaid", Payload: Order{ID: 42, Status: "paid"}}
	fmt.Println(event.ID == id, id.Version())
	// Output: true VERSION_7
}

// Partitions are created ahead, for today and tomorrow say, once a day.
func ExampleTable_Partition() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, exampleURL(ctx, outbox.PartitionedSchema))
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
