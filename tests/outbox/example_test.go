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
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// Order is what a service of the examples keeps, and what it tells others.
type Order struct {
	ID     int    `json:"id"`
	Status string `json:"status"`
}

// exampleURL is that of a database with a business table and what ddl creates.
func exampleURL(ddl ...string) string {
	url, err := pgtest.ExampleDatabase(append(ddl, `CREATE TABLE orders (id int PRIMARY KEY, status text NOT NULL)`)...)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
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
func Example_write() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, exampleURL(outbox.Schema))
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
func Example_writeSQL() {
	ctx := context.Background()
	db, err := sql.Open("pgx", exampleURL(outbox.Schema))
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

// Any number of events are written with a single statement, in their order.
func Example_writeBulk() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, exampleURL(outbox.Schema))
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

// Faults of events are told before the database is asked, all at once.
func Example_invalidError() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, exampleURL())
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
// answer: the table of Schema refuses the second.
func Example_newID() {
	id, err := outbox.NewID()
	if err != nil {
		fmt.Println(err)
		return
	}
	event := outbox.Event{ID: id, AggregateType: "order", AggregateID: "42", Type: "OrderPaid", Payload: Order{ID: 42, Status: "paid"}}
	fmt.Println(event.ID == id, id.Version())
	// Output: true VERSION_7
}

// A test, a deploy or a migration waits until all events are in Kafka. (It does
// not run here, without a connector.)
func Example_wait() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	if err := waitForEvents(ctx, pool); err != nil {
		fmt.Println(err)
	}
}

func waitForEvents(ctx context.Context, pool *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := outbox.Wait(ctx, pool, outbox.WaitOptions{Slot: "cdc_outbox"})
	return err
}
