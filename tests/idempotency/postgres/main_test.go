package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

func TestMain(m *testing.M) { pgtest.Main(testserver.Waiting(m)) }

// patience bounds every wait of a test.
const patience = time.Minute

// The usual times, longer than any test.
const (
	long      = time.Hour
	retention = 24 * time.Hour
)

// limited returns the test's context with a deadline.
func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// connect returns a pool on a database; change may alter the configuration.
func connect(t testing.TB, url string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 10
	for _, f := range change {
		f(config)
	}
	pool, err := pgxpool.NewWithConfig(limited(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// database returns a pool on a new database with the table.
func database(t testing.TB, o postgres.Options, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	pool := connect(t, pgtest.Shared(t).NewDatabase(t), change...)
	create(t, pool, o)
	return pool
}

// create creates the table.
func create(t testing.TB, pool *pgxpool.Pool, o postgres.Options) {
	t.Helper()
	ddl, err := postgres.Schema(o)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, ddl)
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(limited(t), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// begin begins a transaction rolled back when the test ends.
func begin(t testing.TB, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// query returns the only value of a query.
func query[V any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) V {
	t.Helper()
	rows, err := pool.Query(limited(t), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[V])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// storesDatabase is the parameter of postgres.New.
type storesDatabase interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

func newStore(t testing.TB, db storesDatabase, o postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.New(db, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func key(id string) storage.Key { return storage.Key{Scope: "test", ID: id} }

// request is a claim outliving the test.
func request() storage.ClaimRequest {
	return storage.ClaimRequest{Owner: storage.NewOwner(), Lease: long, Retention: retention}
}

// claim claims a free key.
func claim(t testing.TB, s *postgres.Store, k storage.Key, r storage.ClaimRequest) storage.Claim {
	t.Helper()
	c, err := s.Claim(limited(t), k, r)
	if err != nil {
		t.Fatal(err)
	}
	if c.Outcome != storage.Claimed {
		t.Fatalf("claim of %s: %s, want claimed", k, c.Outcome)
	}
	return c
}

func newDatabase(t testing.TB) string {
	t.Helper()
	return pgtest.Shared(t).NewDatabase(t)
}

// sameTransaction lets a store work in a transaction, so a test can see the
// locks.
type sameTransaction struct{ pgx.Tx }

func (tx sameTransaction) BeginTx(ctx context.Context, _ pgx.TxOptions) (pgx.Tx, error) {
	return tx.Begin(ctx)
}
