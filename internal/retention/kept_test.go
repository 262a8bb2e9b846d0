package retention_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap/zaptest"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/retention"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

const insert = `INSERT INTO outbox (aggregatetype, aggregateid, type, created_at) VALUES ('a', '1', $1, now() - $2::interval)`

// kept is a database with retention at work.
type kept struct {
	t         *testing.T
	conn      *pgx.Conn
	observer  *observer
	confirmed *atomic.Uint64
}

func start(t *testing.T, schema string) kept {
	return startWith(t, schema, func(*retention.Parts) {})
}

func startWith(t *testing.T, schema string, adapt func(*retention.Parts)) kept {
	t.Helper()
	return startOn(t, pgtest.Shared(t), schema, adapt)
}

func startOn(t *testing.T, server *pgtest.Server, schema string, adapt func(*retention.Parts)) kept {
	t.Helper()
	url := server.NewDatabase(t)
	pgtest.Exec(t, url, schema)
	k := kept{t: t, observer: &observer{}, confirmed: new(atomic.Uint64)}
	k.conn = connect(t, url)
	opts := retention.Parts{
		Options: retention.Options{
			After:           200 * time.Millisecond, // a pass each 10 ms
			Column:          "created_at",
			Interval:        10 * time.Millisecond,
			PartitionsAhead: 2,
		},
		Connect:   func(ctx context.Context) (*pgx.Conn, error) { return catalog.Connect(ctx, url) },
		Tables:    []pg.Table{{Schema: "public", Name: "outbox"}},
		Confirmed: func() pg.LSN { k.observer.looks.Add(1); return pg.LSN(k.confirmed.Load()) },
		Observer:  k.observer,
		Log:       zaptest.NewLogger(t),
	}
	adapt(&opts)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { retention.Run(ctx, opts) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return k
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn := must.Get(pgx.Connect(t.Context(), url))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (k kept) exec(statements ...string) {
	k.t.Helper()
	for _, sql := range statements {
		if _, err := k.conn.Exec(k.t.Context(), sql); err != nil {
			k.t.Fatalf("%s: %v", sql, err)
		}
	}
}

func (k kept) insert(typ, age string) {
	k.t.Helper()
	must.Get(k.conn.Exec(k.t.Context(), insert, typ, age))(k.t)
}

// end is the end of the log.
func (k kept) end() uint64 {
	k.t.Helper()
	var text string
	must.OK(k.t, k.conn.QueryRow(k.t.Context(), `SELECT pg_current_wal_insert_lsn()::text`).Scan(&text))
	lsn := must.Get(pglogrepl.ParseLSN(text))(k.t)
	return uint64(lsn)
}

// confirmAll confirms all committed. A wait for the consequences must confirm again
// and again: the server writes to the log by itself, and a moment noted later by
// retention lies beyond everything confirmed before.
func (k kept) confirmAll() uint64 {
	lsn := k.end()
	k.confirmed.Store(lsn)
	return lsn
}

// passes waits until retention had n times the time for a pass: each look at
// the confirmed position may start one.
func (k kept) passes(n int64) {
	k.t.Helper()
	from := k.observer.looks.Load()
	await.Until(k.t, "passes", func() bool { return k.observer.looks.Load() >= from+n })
}

func (k kept) count(where string) int64 { return k.value(`SELECT count(*) FROM outbox WHERE ` + where) }

func (k kept) value(query string) (n int64) {
	k.t.Helper()
	must.OK(k.t, k.conn.QueryRow(k.t.Context(), query).Scan(&n))
	return n
}

// failure waits, confirming all, until a pass has failed.
func (k kept) failure() error {
	k.t.Helper()
	await.Until(k.t, "a failed pass", func() bool { k.confirmAll(); return k.observer.failed.Load() > 0 })
	return k.observer.last()
}

// gone waits, confirming all, until oldPartition is dropped.
func (k kept) gone() {
	k.t.Helper()
	await.Until(k.t, "the partition to go", func() bool { k.confirmAll(); return k.there() == 0 })
}

// there is 1 while the table of oldPartition exists, else 0.
func (k kept) there() int64 {
	k.t.Helper()
	return k.value(`SELECT count(*) FROM pg_class WHERE relname = 'outbox_p20200101'`)
}

// withAndWithoutDefault runs a test with a default partition and without.
func withAndWithoutDefault(t *testing.T, test func(t *testing.T, schema string, withDefault bool)) {
	for withDefault, schema := range map[bool]string{true: outbox.PartitionedSchema, false: outbox.PartitionedSchema + `; DROP TABLE outbox_default`} {
		t.Run(fmt.Sprintf("default partition %t", withDefault), func(t *testing.T) { test(t, schema, withDefault) })
	}
}

// observer counts.
type observer struct {
	deleted, created, dropped, passed, failed, looks atomic.Int64

	mu  sync.Mutex
	err error // the last
}

func (o *observer) last() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

func (o *observer) RetentionDeleted(_ pg.Table, rows int64) { o.deleted.Add(rows) }

func (o *observer) RetentionPartition(_ pg.Table, change retention.PartitionChange) {
	if change == retention.Created {
		o.created.Add(1)
	} else {
		o.dropped.Add(1)
	}
}

func (o *observer) RetentionPassed(_ pg.Table, _ int64, err error) {
	o.passed.Add(1)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.err = err
		o.failed.Add(1)
	}
}
