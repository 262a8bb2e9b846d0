package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// poolerPatience bounds the search for a pooler: a pooler with a single
// connection would let us wait for ourselves.
const poolerPatience = 5 * time.Second

const backendSQL = `SELECT pg_backend_pid()`

// preparedSQL is prepared by no one else.
const preparedSQL = `SELECT $1::int -- looks for a pooler`

// checkPooler finds a pooler in transaction mode between us and the server, if
// the pool's statements do not bear one. It asks two connections: behind such a
// pooler, both have the same server connection in turn.
func (s *Store) checkPooler(ctx context.Context) []storage.Problem {
	pool, ok := s.db.(*pgxpool.Pool)
	if !ok || pool.Config().MaxConns < 2 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, poolerPatience)
	defer cancel()
	lost, err := losesStatements(ctx, pool)
	if err != nil || !lost {
		return nil // the other questions tell of other faults
	}
	return []storage.Problem{{
		Fatal: true,
		Text: fmt.Sprintf("a pooler gives each transaction another connection, and statements are lost there (pgx's default_query_exec_mode is %s): claims and handlers fail now and then (26000, 42P05)",
			pool.Config().ConnConfig.DefaultQueryExecMode),
		Remedy: pgsql.PoolerRemedy,
	}}
}

// losesStatements tells whether a connection's prepared statement is gone while
// another connection has the server connection with the statement.
func losesStatements(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	a, err := pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer a.Release()
	b, err := pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer b.Release()
	var before, held int32
	if err := a.QueryRow(ctx, backendSQL, pgx.QueryExecModeSimpleProtocol).Scan(&before); err != nil {
		return false, err
	}
	if _, err := a.Exec(ctx, preparedSQL, 1); pgsql.LostStatement(err) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	if _, err := b.Exec(ctx, "begin"); err != nil {
		return false, err
	}
	defer func() { _, _ = b.Exec(context.WithoutCancel(ctx), "rollback") }()
	if err := b.QueryRow(ctx, backendSQL, pgx.QueryExecModeSimpleProtocol).Scan(&held); err != nil || held != before {
		return false, err
	}
	if mode := pool.Config().ConnConfig.DefaultQueryExecMode; mode == pgx.QueryExecModeDescribeExec {
		return true, nil // only with a pooler that takes several messages for a single one
	}
	_, err = a.Exec(ctx, preparedSQL, 1)
	return pgsql.LostStatement(err), nil
}
