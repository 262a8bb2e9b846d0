package guard_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "github.com/lib/pq"              // the driver postgres

	"github.com/cdc-outbox/cdc-outbox/idempotency/guard"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience bounds every wait of a test.
const patience = time.Minute

func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// newDatabase returns the URL of a database where the statements were run.
func newDatabase(t testing.TB, statements ...string) string {
	t.Helper()
	url := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, url, statements...)
	return url
}

func newPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(limited(t), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// do runs f in a transaction committing unless f fails.
type do func(ctx context.Context, f func(tx guard.Tx) error) error

// clients are the ways to talk to PostgreSQL.
func clients(t testing.TB, url string) map[string]do {
	t.Helper()
	pool := newPool(t, url)
	all := map[string]do{
		"pgx": func(ctx context.Context, f func(guard.Tx) error) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return f(guard.PGX(tx)) })
		},
	}
	for _, driver := range []string{"pgx", "postgres"} {
		db, err := sql.Open(driver, url+"?sslmode=disable")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		all["sql with "+driver] = func(ctx context.Context, f func(guard.Tx) error) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if err := f(guard.SQL(tx)); err != nil {
				_ = tx.Rollback()
				return err
			}
			return tx.Commit()
		}
	}
	return all
}

// each runs a test with each client, on a separate database.
func each(t *testing.T, statements []string, test func(t *testing.T, pool *pgxpool.Pool, do do)) {
	t.Helper()
	for _, name := range []string{"pgx", "sql with pgx", "sql with postgres"} {
		t.Run(name, func(t *testing.T) {
			url := newDatabase(t, statements...)
			test(t, newPool(t, url), clients(t, url)[name])
		})
	}
}

func value[V any](t testing.TB, pool *pgxpool.Pool, query string) V {
	t.Helper()
	var v V
	if err := pool.QueryRow(limited(t), query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// answer is a guard's answer, in a single word.
func answer(ok bool, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(ok)
}

func openSQL(url string) (db *sql.DB, closeDB func()) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		panic(err)
	}
	return db, func() { _ = db.Close() }
}
