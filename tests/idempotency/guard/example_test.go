package guard_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency/guard"
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

// A message is delivered a thousand times, to ten consumers at once. The order
// is paid once, and a single event says so.
func Example_transitionApply() {
	ctx := context.Background()
	pool := exampleDatabase(outbox.Schema,
		`CREATE TABLE orders (id bigint PRIMARY KEY, status text NOT NULL)`,
		`INSERT INTO orders VALUES (1, 'PENDING'), (2, 'CANCELLED')`)
	defer pool.Close()

	paid := guard.Transition{
		Table: "orders", Key: "id", Status: "status",
		From: []string{"PENDING"}, To: "PAID", Beyond: []string{"SHIPPED"},
	}
	handle := func(order int) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			changed, err := paid.Apply(ctx, guard.PGX(tx), order)
			if err != nil || !changed {
				return err
			}
			_, err = outbox.Write(ctx, tx, outbox.Event{
				AggregateType: "order", AggregateID: fmt.Sprint(order), Type: "OrderReadyForShipment",
				Payload: map[string]int{"order": order},
			})
			return err
		})
	}

	var consumers sync.WaitGroup
	for range 10 {
		consumers.Go(func() {
			for range 100 {
				if err := handle(1); err != nil {
					fmt.Println(err)
				}
			}
		})
	}
	consumers.Wait()

	var status string
	var events int
	err := pool.QueryRow(ctx, `SELECT status, (SELECT count(*) FROM outbox) FROM orders WHERE id = 1`).Scan(&status, &events)
	fmt.Println(status, "with", events, "event", err)

	// A payment for a cancelled order is no repetition: somebody must look.
	err = handle(2)
	var state *guard.StateError
	fmt.Println(errors.As(err, &state), err)
	// Output:
	// PAID with 1 event <nil>
	// true row 2 of orders is "CANCELLED", which does not lead to "PAID"
}

// Increments leave no state to recognise a repetition by.
func Example_appliedFirst() {
	ctx := context.Background()
	pool := exampleDatabase(guard.Applied{}.Schema(),
		`CREATE TABLE accounts AS SELECT 'alice' AS name, 100 AS balance`)
	defer pool.Close()

	deposit := func(eventID string, amount int) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			first, err := guard.Applied{}.First(ctx, guard.PGX(tx), "accounts", eventID)
			if err != nil || !first {
				return err
			}
			_, err = tx.Exec(ctx, `UPDATE accounts SET balance = balance + $1 WHERE name = 'alice'`, amount)
			return err
		})
	}
	for range 3 {
		if err := deposit("deposit-1", 5); err != nil {
			fmt.Println(err)
		}
	}
	var balance int
	err := pool.QueryRow(ctx, `SELECT balance FROM accounts`).Scan(&balance)
	fmt.Println(balance, err)
	// Output: 105 <nil>
}

// Events with the whole state and a version: the newest wins, in whatever order
// they come. Advance is for a state taking more than a single statement to
// write.
func Example_markAdvance() {
	ctx := context.Background()
	pool := exampleDatabase(
		`CREATE TABLE carts (id bigint PRIMARY KEY, version bigint)`,
		`CREATE TABLE items (cart bigint, item text)`,
		`INSERT INTO carts VALUES (1)`)
	defer pool.Close()

	mark := guard.Mark{Table: "carts", Key: "id", Column: "version"}
	replace := func(version int64, items ...string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			newest, err := mark.Advance(ctx, guard.PGX(tx), 1, version)
			if err != nil || !newest {
				return err
			}
			_, err = tx.Exec(ctx, `WITH gone AS (DELETE FROM items WHERE cart = 1)
				INSERT INTO items SELECT 1, unnest($1::text[])`, items)
			return err
		})
	}
	for _, err := range []error{replace(1, "tea"), replace(3, "tea", "cup"), replace(2), replace(3, "tea", "cup")} {
		if err != nil {
			fmt.Println(err)
		}
	}
	var items []string
	err := pool.QueryRow(ctx, `SELECT array_agg(item ORDER BY item) FROM items`).Scan(&items)
	fmt.Println(items, err)
	// Output: [cup tea] <nil>
}

// A state in a single row needs no guard but the condition of the upsert: the
// newest version wins, and rows affected tells whether the event was the newest.
func Example_newestVersion() {
	ctx := context.Background()
	pool := exampleDatabase(
		`CREATE TABLE customers (id bigint PRIMARY KEY, version bigint NOT NULL, address text NOT NULL)`)
	defer pool.Close()

	store := func(version int64, address string) {
		tag, err := pool.Exec(ctx, `
			INSERT INTO customers AS known (id, version, address) VALUES (1, $1, $2)
			ON CONFLICT (id) DO UPDATE SET version = excluded.version, address = excluded.address
			WHERE known.version < excluded.version`, version, address)
		fmt.Println(address, tag.RowsAffected() == 1, err)
	}
	store(1, "Old Street")
	store(3, "New Street")
	store(2, "Middle Street")
	store(3, "New Street")
	// Output:
	// Old Street true <nil>
	// New Street true <nil>
	// Middle Street false <nil>
	// New Street false <nil>
}

// A protected resource is written only by the holder with the greatest fence
// (idempotency.FenceFrom) so far. A holder paused beyond the lease comes too
// late.
func Example_markFence() {
	ctx := context.Background()
	pool := exampleDatabase(
		`CREATE TABLE reports (name text PRIMARY KEY, fence bigint, lines int NOT NULL DEFAULT 0)`,
		`INSERT INTO reports VALUES ('daily')`)
	defer pool.Close()

	mark := guard.Mark{Table: "reports", Key: "name", Column: "fence"}
	write := func(fence int64) {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := mark.Fence(ctx, guard.PGX(tx), "daily", fence); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `UPDATE reports SET lines = lines + 1 WHERE name = 'daily'`)
			return err
		})
		fmt.Println(fence, err)
	}
	write(33)
	write(34) // the lease of 33 ended
	write(34)
	write(33) // the first holder wakes up
	// Output:
	// 33 <nil>
	// 34 <nil>
	// 34 <nil>
	// 33 fence row daily of reports with 33: fenced off: a later holder of the lease was here
}

// A write by a single statement carries the fence itself.
func Example_fencedWrite() {
	ctx := context.Background()
	pool := exampleDatabase(
		`CREATE TABLE reports (name text PRIMARY KEY, fence bigint NOT NULL, text text NOT NULL)`,
		`INSERT INTO reports VALUES ('daily', 0, '')`)
	defer pool.Close()

	write := func(fence int64, text string) {
		tag, err := pool.Exec(ctx, `UPDATE reports SET text = $2, fence = $1 WHERE name = 'daily' AND fence <= $1`, fence, text)
		fmt.Println(text, tag.RowsAffected() == 1, err)
	}
	write(34, "by the holder")
	write(33, "by the one before")
	// Output:
	// by the holder true <nil>
	// by the one before false <nil>
}

// The guards work with database/sql just as well.
func Example_sql() {
	pool := exampleDatabase(`CREATE TABLE orders AS SELECT 1 AS id, 'PENDING' AS status`)
	defer pool.Close()
	db, closeDB := openSQL(pool.Config().ConnString())
	defer closeDB()

	tx, err := db.Begin()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tx.Rollback() //nolint:errcheck // after the commit there is nothing to roll back
	paid := guard.Transition{Table: "orders", Key: "id", Status: "status", From: []string{"PENDING"}, To: "PAID"}
	fmt.Println(paid.Apply(context.Background(), guard.SQL(tx), 1))
	fmt.Println(tx.Commit())
	// Output:
	// true <nil>
	// <nil>
}
