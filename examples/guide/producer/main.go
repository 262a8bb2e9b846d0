// Command producer places an order and announces it, in a single transaction.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/outbox"
)

func main() {
	if err := place(context.Background(), os.Getenv("DATABASE_URL"), 42); err != nil {
		log.Fatal(err)
	}
}

func place(ctx context.Context, url string, id int) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id, status) VALUES ($1, 'placed')`, id); err != nil {
			return err
		}
		_, err := outbox.Write(ctx, tx, outbox.Event{
			AggregateType: "order", AggregateID: fmt.Sprint(id), Type: "OrderPlaced",
			Payload: map[string]any{"id": id, "status": "placed"},
		})
		return err
	})
}
