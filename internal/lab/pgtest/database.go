package pgtest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// databases numbers the databases of a test binary.
var databases atomic.Int64

// NewDatabase creates an empty database and returns the URL. When the test
// ends, the database is dropped with its replication slots, and its sessions are
// disconnected.
func (s *Server) NewDatabase(t testing.TB) (url string) {
	t.Helper()
	name := fmt.Sprintf("test_%d", databases.Add(1))
	s.Exec(t, "CREATE DATABASE "+name)
	t.Cleanup(func() { s.dropDatabase(t, name) })
	return s.URL(name)
}

// Exec runs statements in the database postgres, each alone.
func (s *Server) Exec(t testing.TB, sql ...string) {
	t.Helper()
	Exec(t, s.URL("postgres"), sql...)
}

// Exec runs statements in the database of url, each alone.
func Exec(t testing.TB, url string, sql ...string) {
	t.Helper()
	connected(t, url, func(ctx context.Context, conn *pgx.Conn) error { return execute(ctx, conn, sql) })
}

// connected does something with a connection, in time or the test fails.
func connected(t testing.TB, url string, do func(ctx context.Context, conn *pgx.Conn) error) {
	t.Helper()
	testserver.Do(t, "PostgreSQL", func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		return do(ctx, conn)
	})
}

// dropPause is between two attempts to drop a database.
const dropPause = 50 * time.Millisecond

// dropDatabase first refuses new connections, or a reconnecting client could hold a
// slot again. Another attempt is for connections let in just before, or ending slowly.
func (s *Server) dropDatabase(t testing.TB, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		t.Logf("database %s stays: %v", name, err) // the test stopped the server
		return
	}
	defer conn.Close(ctx)
	statements := []string{
		"ALTER DATABASE " + name + " ALLOW_CONNECTIONS false",
		"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '" + name + "'",
		"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '" + name + "'",
		"DROP DATABASE " + name + " WITH (FORCE)",
	}
	for {
		err := execute(ctx, conn, statements)
		// Of a slot being read, and of a database with connections.
		if pgsql.State(err) == pgerrcode.ObjectInUse && backoff.Sleep(ctx, dropPause) == nil {
			continue
		}
		if err != nil {
			t.Errorf("drop database: %v", err)
		}
		return
	}
}

// execute runs the statements, each alone, up to the first failure.
func execute(ctx context.Context, conn *pgx.Conn, statements []string) error {
	for _, stmt := range statements {
		if _, err := conn.Exec(ctx, stmt); err != nil {
			return fmt.Errorf("%s: %w", abbreviate(stmt), err)
		}
	}
	return nil
}

func abbreviate(stmt string) string {
	stmt = strings.Join(strings.Fields(stmt), " ")
	if len(stmt) > 120 {
		return stmt[:120] + "…"
	}
	return stmt
}

// Overload puts functions into the schema public. Wherever somebody calls PostgreSQL's
// own without their schema, they take the place, as their parameters fit better. They
// do the same, and count the call. calls is the number of calls.
func Overload(t testing.TB, url string) (calls func() (n int64)) {
	t.Helper()
	Exec(t, url, `CREATE SEQUENCE public.overload_calls`,
		`CREATE FUNCTION public.format(text, name, name) RETURNS text LANGUAGE sql AS
			$$ SELECT pg_catalog.nextval('public.overload_calls'); SELECT pg_catalog.format($1, $2::text, $3::text) $$`,
		`CREATE FUNCTION public.to_jsonb(pg_catalog.pg_replication_slots) RETURNS jsonb LANGUAGE sql AS
			$$ SELECT pg_catalog.nextval('public.overload_calls'); SELECT pg_catalog.row_to_json($1)::jsonb $$`)
	return func() (n int64) {
		t.Helper()
		connected(t, url, func(ctx context.Context, conn *pgx.Conn) error {
			return conn.QueryRow(ctx, `SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM public.overload_calls`).Scan(&n)
		})
		return n
	}
}
