package main

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/guard"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgserver"
)

// postgresPool starts a server, and connects.
func postgresPool(ctx context.Context, s *stage, conns int) (*pgxpool.Pool, error) {
	bin, err := pgserver.Ensure(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	server, err := pgserver.Start(ctx, pgserver.Options{BinDir: bin, Durable: true})
	if err != nil {
		return nil, err
	}
	s.onClose(func() { _ = server.Close() })
	config, err := pgxpool.ParseConfig(server.URL("postgres"))
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(conns)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	s.onClose(pool.Close)
	return pool, nil
}

func startPostgres(ctx context.Context, s *stage, o options) error {
	pool, err := postgresPool(ctx, s, o.workers)
	if err != nil {
		return err
	}
	keys, err := postgres.Schema(postgres.Options{})
	if err != nil {
		return err
	}
	const byDay = "keys_by_day"
	partitions, err := postgres.Schema(postgres.Options{Table: byDay, Partitioned: true})
	if err != nil {
		return err
	}
	for _, sql := range []string{keys, partitions, guard.Applied{}.Schema(), `CREATE TABLE bare (id text PRIMARY KEY)`, `CREATE TABLE effects (id text)`,
		`CREATE TABLE orders (id text PRIMARY KEY, status text NOT NULL)`} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	var version string
	if err := pool.QueryRow(ctx, `SHOW server_version`).Scan(&version); err != nil {
		return err
	}
	store, err := postgres.New(pool, postgres.Options{})
	if err != nil {
		return err
	}
	partitioned, err := postgres.New(pool, postgres.Options{Table: byDay, Partitioned: true})
	if err != nil {
		return err
	}
	transactional, err := postgres.NewTransactional(pool, postgres.Options{})
	if err != nil {
		return err
	}
	x, err := idempotency.New(idempotency.Options{Store: transactional, MaxAttempts: -1})
	if err != nil {
		return err
	}
	defer x.Close()
	s.note("PostgreSQL %s, fsync on, TCP loopback; bare: INSERT of a row, committed", version)
	insertBare := func(ctx context.Context, m *message) error {
		_, err := pool.Exec(ctx, `INSERT INTO bare VALUES ($1)`, m.Key.ID)
		return err
	}
	s.add("PostgreSQL", insertBare, ofStore(store))
	windowed, err := behindWindow(store)
	if err != nil {
		return err
	}
	s.add("PostgreSQL, window in front", insertBare, windowed)
	s.add("PostgreSQL, partitioned", insertBare, ofStore(partitioned))
	s.add("PostgreSQL, Transactional", insertBare, ofTransactional(x, pool))
	s.add("PostgreSQL, guard.Transition", insertBare, ofTransition(pool))
	s.add("PostgreSQL, guard.Applied", insertBare, ofApplied(pool))
	return nil
}

// ofTransition are the calls of a guard in the state, beside a transaction
// changing a row without a guard.
func ofTransition(pool *pgxpool.Pool) (calls [phases]call) {
	paid := guard.Transition{Table: "orders", Key: "id", Status: "status", From: []string{"PENDING"}, To: "PAID"}
	other := func(m *message) string { return "other " + m.Key.ID }
	apply := func(ctx context.Context, m *message, want bool) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			changed, err := paid.Apply(ctx, guard.PGX(tx), m.Key.ID)
			if err == nil && changed != want {
				err = fmt.Errorf("order %s: changed is %t", m.Key.ID, changed)
			}
			return err
		})
	}
	calls[prepare] = func(ctx context.Context, m *message) error {
		_, err := pool.Exec(ctx, `INSERT INTO orders VALUES ($1, 'PENDING'), ($2, 'PENDING')`, m.Key.ID, other(m))
		return err
	}
	calls[work] = func(ctx context.Context, m *message) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE orders SET status = 'PAID' WHERE id = $1`, other(m))
			return err
		})
	}
	calls[claim] = func(ctx context.Context, m *message) error { return apply(ctx, m, true) }
	calls[duplicate] = func(ctx context.Context, m *message) error { return apply(ctx, m, false) }
	return calls
}

// ofApplied are the calls of the guard remembering events, beside a transaction
// inserting a row without a guard.
func ofApplied(pool *pgxpool.Pool) (calls [phases]call) {
	apply := func(ctx context.Context, m *message, want bool) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			first, err := guard.Applied{}.First(ctx, guard.PGX(tx), m.Key.Scope, m.Key.ID)
			if err == nil && first != want {
				err = fmt.Errorf("event %s: first is %t", m.Key.ID, first)
			}
			if err != nil || !first {
				return err
			}
			return insert(ctx, tx, m)
		})
	}
	calls[work] = inserts(pool)
	calls[claim] = func(ctx context.Context, m *message) error { return apply(ctx, m, true) }
	calls[duplicate] = func(ctx context.Context, m *message) error { return apply(ctx, m, false) }
	return calls
}

// insert is a handler's work.
func insert(ctx context.Context, tx pgx.Tx, m *message) error {
	_, err := tx.Exec(ctx, `INSERT INTO effects VALUES ($1)`, m.Key.ID)
	return err
}

// inserts does the work in a separate transaction.
func inserts(pool *pgxpool.Pool) call {
	return func(ctx context.Context, m *message) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return insert(ctx, tx, m) })
	}
}

// ofTransactional are the calls of the runner whose handler inserts a row, beside a
// transaction with the insert alone.
func ofTransactional(x *idempotency.Processor, pool *pgxpool.Pool) (calls [phases]call) {
	run := func(ctx context.Context, m *message, want idempotency.Disposition) error {
		r, err := x.Run(ctx, m.Message, func(ctx context.Context) ([]byte, error) {
			return stored, insert(ctx, postgres.Tx(ctx), m)
		})
		if err == nil && r.Disposition != want {
			err = fmt.Errorf("message %s: %s instead of %s", m.Key, r.Disposition, want)
		}
		return err
	}
	calls[work] = inserts(pool)
	calls[claim] = func(ctx context.Context, m *message) error { return run(ctx, m, idempotency.Handled) }
	calls[duplicate] = func(ctx context.Context, m *message) error { return run(ctx, m, idempotency.Skipped) }
	return calls
}
