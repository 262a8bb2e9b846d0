package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "github.com/lib/pq"              // the driver postgres

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// newDB returns a database where the statements were run.
func newDB(t testing.TB, statements ...string) (url string) {
	t.Helper()
	url = pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, url, statements...)
	return url
}

// beginner begins a transaction, and returns transaction and commit.
type beginner func(t testing.TB) (tx outbox.Tx, commit func() error)

// clients are the ways to talk to PostgreSQL, all with the same rows: pgx in each
// of the modes, and database/sql with two drivers.
func clients(t testing.TB, url string) map[string]beginner {
	t.Helper()
	all := map[string]beginner{
		"sql with pgx":    beginSQL("pgx", url),
		"sql with lib/pq": beginSQL("postgres", url+"?sslmode=disable"),
		"pool": func(t testing.TB) (outbox.Tx, func() error) {
			pool, err := pgxpool.New(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // or Close waits for it
			return outbox.PGX(tx), func() error { return tx.Commit(context.Background()) }
		},
	}
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		all[fmt.Sprintf("pgx, mode %s", mode)] = func(t testing.TB) (outbox.Tx, func() error) {
			conn := connectMode(t, url, mode)
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return outbox.PGX(tx), func() error { return tx.Commit(context.Background()) }
		}
	}
	return all
}

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	return connectMode(t, url, pgx.QueryExecModeCacheStatement) // pgx's default
}

func connectMode(t testing.TB, url string, mode pgx.QueryExecMode) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.DefaultQueryExecMode = mode
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func beginSQL(driver, url string) beginner {
	return func(t testing.TB) (outbox.Tx, func() error) {
		t.Helper()
		db, err := sql.Open(driver, url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return outbox.SQL(tx), tx.Commit
	}
}

// awaitTrue returns once the query says true; NULL is not yet.
func awaitTrue(t testing.TB, url, what, query string, args ...any) {
	t.Helper()
	conn := connect(t, url)
	await.Until(t, what, func() bool {
		var is *bool
		if err := conn.QueryRow(t.Context(), query, args...).Scan(&is); err != nil {
			t.Fatal(err)
		}
		return is != nil && *is
	})
}

// begin returns a transaction of pgx rolled back when the test ends.
func begin(t testing.TB, url string) pgx.Tx {
	t.Helper()
	tx, err := connect(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func newWriter(t testing.TB, opts outbox.Options) *outbox.Writer {
	t.Helper()
	w, err := outbox.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// order returns a valid event.
func order(id string) outbox.Event {
	return outbox.Event{AggregateType: "order", AggregateID: id, Type: "Placed", Payload: map[string]string{"id": id}}
}
