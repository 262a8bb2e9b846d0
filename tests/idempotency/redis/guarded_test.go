package redis_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/guard"
	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redistest"
)

// A message forgotten by Redis runs again, and the guard in the database says
// no. How a server comes to forget is told in the stories.
func TestGuardBehindAServerThatForgets(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, url, guard.Applied{}.Schema()+`; CREATE TABLE effects (id text NOT NULL)`)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	client := redistest.Shared(t).Client(t)
	forget := func() { do(t, client, "DEL", prefix(t)+":{shipping/order-1}") }
	lost, ran := 0, 0
	processor := newProcessor(t, idempotency.Options{
		Store: newStore(t, client, redis.Options{}), MaxAttempts: -1,
		Observer: idempotency.Observer{LeaseLost: func(idempotency.Loss) { lost++ }},
	})
	apply := func(ctx context.Context) ([]byte, error) {
		ran++
		return nil, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			first, err := guard.Applied{}.First(ctx, guard.PGX(tx), key.Scope, key.ID)
			if err != nil || !first {
				return err
			}
			_, err = tx.Exec(ctx, `INSERT INTO effects VALUES ($1)`, key.ID)
			return err
		})
	}
	deliver := func(h idempotency.Handler, want idempotency.Disposition) {
		t.Helper()
		if result, err := processor.Run(t.Context(), idempotency.Message{Key: key}, h); result.Disposition != want {
			t.Errorf("delivered: %s, %v; want %s", result.Disposition, err, want)
		}
	}

	deliver(func(ctx context.Context) ([]byte, error) {
		if _, err := apply(ctx); err != nil {
			return nil, err
		}
		forget()                            // between effect and completion
		deliver(apply, idempotency.Handled) // elsewhere
		return nil, nil
	}, idempotency.Lost)
	deliver(apply, idempotency.Skipped)
	forget() // after the completion
	deliver(apply, idempotency.Handled)

	var effects int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM effects`).Scan(&effects); err != nil {
		t.Fatal(err)
	}
	if lost != 1 || ran != 3 || effects != 1 {
		t.Errorf("%d losses are told, and %d effects of %d runs; want 1, and 1 of 3", lost, effects, ran)
	}
}
