package catalog

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

// connect opens an ordinary connection for one test and runs statements on it.
func connect(t *testing.T, url string, statements ...string) *pgx.Conn {
	t.Helper()
	conn := must.Get(Connect(pgtest.Context(t), url))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	pgtest.Execute(t, conn, statements...)
	return conn
}

// replication opens a replication connection for one test.
func replication(t *testing.T, url string) *pgconn.PgConn {
	t.Helper()
	conn := must.Get(ConnectReplication(pgtest.Context(t), url))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
