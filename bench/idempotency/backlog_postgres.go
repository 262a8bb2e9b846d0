package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
)

// measurePostgresBacklog races a loop with a transaction per message, of the
// key and the handler's row, and the library with Transactional. A loop inserting only
// the row shows the cost of the rest.
func measurePostgresBacklog(ctx context.Context, b *backlog, rounds int, out io.Writer) error {
	var s stage
	defer s.close()
	const more = 32
	pool, err := postgresPool(ctx, &s, more+1) // a connection more than the consumer's Concurrency
	if err != nil {
		return err
	}
	keys, err := postgres.Schema(postgres.Options{})
	if err != nil {
		return err
	}
	for _, sql := range []string{keys, `CREATE TABLE bare (id text PRIMARY KEY)`, `CREATE TABLE effects (id text)`} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	store, err := postgres.NewTransactional(pool, postgres.Options{})
	if err != nil {
		return err
	}
	effect := func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := tx.Exec(ctx, `INSERT INTO effects VALUES ($1)`, id)
		return err
	}
	bare := func(keyed bool) func(ctx context.Context, group string) error {
		return func(ctx context.Context, group string) error {
			return b.bare(ctx, group, func(ctx context.Context, scope, id string) error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if keyed {
						tag, err := tx.Exec(ctx, `INSERT INTO bare VALUES ($1) ON CONFLICT DO NOTHING`, scope+"/"+id)
						if err != nil || tag.RowsAffected() == 0 {
							return fmt.Errorf("insert the key: %s, %w", tag, err)
						}
					}
					return effect(ctx, tx, id)
				})
			})
		}
	}
	b.title(out, "inserts a row", rounds)
	return b.race(ctx, append([]contender{
		{"bare loop, a transaction a message with its key", bare(true)},
		{"the same without a key", bare(false)},
	}, b.orders(store, func(ctx context.Context, r *kgo.Record) error {
		return effect(ctx, postgres.Tx(ctx), recordID(r))
	}, more)...), rounds, out)
}
