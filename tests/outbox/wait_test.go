package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// waiting calls one of the two functions for a client.
type waiting func(ctx context.Context, opts outbox.WaitOptions) error

func waitSQL(t *testing.T, driver, url string) waiting {
	t.Helper()
	db, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return func(ctx context.Context, opts outbox.WaitOptions) error { return outbox.WaitSQL(ctx, db, opts) }
}

// waits are the clients of Wait.
func waits(t *testing.T, url string) map[string]waiting {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	all := map[string]waiting{
		"pool":            func(ctx context.Context, opts outbox.WaitOptions) error { return outbox.Wait(ctx, pool, opts) },
		"sql with pgx":    waitSQL(t, "pgx", url),
		"sql with lib/pq": waitSQL(t, "postgres", url+"?sslmode=disable"),
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		conn := connectMode(t, url, mode)
		all["pgx, mode "+mode.String()] = func(ctx context.Context, opts outbox.WaitOptions) error { return outbox.Wait(ctx, conn, opts) }
	}
	return all
}

// soon is a context with a deadline that a busy machine meets.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// orders is how many events the topic has at this moment.
func orders(t *testing.T, admin *kadm.Client) int {
	t.Helper()
	ends, err := admin.ListEndOffsets(t.Context(), "outbox.event.order")
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup("outbox.event.order", 0)
	return int(end.Offset)
}

// Failure mode 184. Wait ends when the events are in Kafka, with each client, a
// pooler in between, and a role that may only write.
func TestWaitEndsWithTheLastEvent(t *testing.T) {
	for name, mode := range map[string]string{"table": config.ModeWAL, "messages": config.ModeMessage, "polled": config.ModePoll} {
		t.Run(name, func(t *testing.T) {
			url := newDB(t, outbox.Schema, `ALTER TABLE outbox ADD published boolean NOT NULL DEFAULT false`)
			broker := kafkatest.Start(t)
			broker.CreateTopic(t, "outbox.event.order", 1, nil)
			admin := kadm.NewClient(broker.Client(t))
			opts := outbox.WaitOptions{Slot: connect(t, url).Config().Database}
			if mode == config.ModePoll {
				opts = outbox.WaitOptions{Polled: true}
			}
			runConnector(t, url, broker, func(c *config.Config) {
				c.Source.Mode = mode
				if mode == config.ModePoll {
					c.Event.PositionHeaders = false
				}
			})
			written := 0
			for client, wait := range waits(t, url) {
				tx := begin(t, url)
				write := outbox.Write[pgconn.CommandTag]
				if mode == config.ModeMessage {
					write = outbox.Emit[pgconn.CommandTag]
				}
				if _, err := write(t.Context(), tx, someEvents(100)...); err != nil {
					t.Fatal(err)
				}
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				written += 100
				if err := wait(soon(t), opts); err != nil {
					t.Fatalf("%s: %v", client, err)
				}
				if got := orders(t, admin); got != written {
					t.Errorf("%s: the wait has ended with %d of %d events in the topic", client, got, written)
				}
			}
		})
	}
}

// Failure mode 184. Wait says how far the connector is when the time is over, and
// ends at once if it can never know.
func TestWaitInVain(t *testing.T) {
	url := newDB(t, outbox.Schema)
	conn := connect(t, url)
	slot, role := conn.Config().Database, "NONE"
	want := func(opts outbox.WaitOptions, is error, words ...string) {
		t.Helper()
		asks := connect(t, url) // the end of ctx may close it
		pgtest.Execute(t, asks, `SET ROLE `+role)
		ctx := soon(t)
		if is == context.DeadlineExceeded {
			short, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			ctx = short
		}
		err := outbox.Wait(ctx, asks, opts)
		if is != nil && !errors.Is(err, is) {
			t.Fatalf("error %v", err)
		}
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("error %v, want %q in it", err, word)
			}
		}
	}
	want(outbox.WaitOptions{Slot: slot}, outbox.ErrLost, "does not exist")
	pgtest.Execute(t, conn, `SELECT pg_create_logical_replication_slot('`+slot+`', 'pgoutput')`, `INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('order', '1', 'Placed')`)
	want(outbox.WaitOptions{Slot: slot}, context.DeadlineExceeded, "nobody reads slot")
	want(outbox.WaitOptions{Polled: true}, context.DeadlineExceeded, "1 rows of")
	want(outbox.WaitOptions{Polled: true, Published: "sent"}, nil, `"sent"`, "WaitOptions.Published")
	want(outbox.WaitOptions{Polled: true, Table: outbox.Table{Name: "other"}}, nil, "WaitOptions.Table")
	want(outbox.WaitOptions{}, nil, "Slot or Polled")
	want(outbox.WaitOptions{Polled: true, Slot: slot}, nil, "Slot or Polled")
	if err := outbox.Wait(context.Background(), conn, outbox.WaitOptions{Slot: slot}); err == nil || !strings.Contains(err.Error(), "no deadline") {
		t.Errorf("without a deadline: %v", err)
	}
	if err := outbox.Wait(soon(t), begin(t, url), outbox.WaitOptions{Slot: slot}); err == nil || !strings.Contains(err.Error(), "is a transaction") {
		t.Errorf("in a transaction: %v", err)
	}
	var none *pgx.Conn
	if err := outbox.Wait(soon(t), none, outbox.WaitOptions{Slot: slot}); err == nil || !strings.Contains(err.Error(), "no database") {
		t.Errorf("without a database: %v", err)
	}
	pgtest.Execute(t, conn, `CREATE ROLE waits_only`)
	t.Cleanup(func() { pgtest.Exec(t, url, `DROP ROLE waits_only`) })
	role = "waits_only"
	want(outbox.WaitOptions{Polled: true}, nil, "grant the role SELECT")
	want(outbox.WaitOptions{Slot: slot}, context.DeadlineExceeded, "nobody reads slot")
	pgtest.Execute(t, conn, `SELECT pg_drop_replication_slot('`+slot+`')`)
}

// Through PgBouncer in transaction mode each statement may have another
// connection.
func TestWaitThroughAPooler(t *testing.T) {
	url := newDB(t, outbox.Schema)
	pooled := connectMode(t, pgtest.Pooled(t, url, 2), pgx.QueryExecModeExec)
	broker := kafkatest.Start(t)
	broker.CreateTopic(t, "outbox.event.order", 1, nil)
	admin := kadm.NewClient(broker.Client(t))
	runConnector(t, url, broker, nil)
	pgtest.Exec(t, url, `INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('order', '1', 'Placed')`)
	if err := outbox.Wait(soon(t), pooled, outbox.WaitOptions{Slot: connect(t, url).Config().Database}); err != nil {
		t.Fatal(err)
	}
	if got := orders(t, admin); got != 1 {
		t.Errorf("the wait has ended with %d events in the topic", got)
	}
}
