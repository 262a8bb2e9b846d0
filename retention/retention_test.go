package retention_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap/zaptest"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
	"github.com/cdc-outbox/cdc-outbox/outbox"
	"github.com/cdc-outbox/cdc-outbox/retention"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const patience = 20 * time.Second

func TestRowsGoWhenOldAndConfirmed(t *testing.T) {
	k := start(t, outbox.Schema)
	k.insert("old", "1 hour")
	k.insert("young", "-1 hour")

	k.passes(2)
	if got := k.count("TRUE"); got != 2 {
		t.Fatalf("%d rows left, want 2: nothing is confirmed", got)
	}
	k.confirmAll()
	k.await("the old row to go", func() bool { return k.count("type = 'old'") == 0 })
	if got := k.count("type = 'young'"); got != 1 {
		t.Error("the young row went")
	}
	if got := k.observer.deleted.Load(); got != 1 {
		t.Errorf("told of %d rows, want 1", got)
	}
}

// TestLateCommitStays keeps a transaction open from before to after a
// confirmation: its row is old when it becomes visible, and is not published.
func TestLateCommitStays(t *testing.T) {
	k := start(t, outbox.Schema)
	late, err := k.conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Exec(t.Context(), insert, "late", "1 hour"); err != nil {
		t.Fatal(err)
	}
	k.passes(1) // a horizon is taken while the transaction is open
	confirmed := k.confirmAll()
	k.passes(1)
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if confirmed >= k.end() {
		t.Fatal("the late transaction does not end beyond the confirmed position")
	}
	k.insert("marker", "1 hour")
	k.passes(3)
	if got := k.count("type = 'late'"); got != 1 {
		t.Fatal("a row went whose transaction ends beyond the confirmed position")
	}
	k.confirmAll()
	k.await("the late row to go", func() bool { return k.count("type = 'late'") == 0 })
}

func TestLockedRowsAreLeftForLater(t *testing.T) {
	k := start(t, outbox.Schema)
	k.insert("locked", "1 hour")
	tx, err := k.conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM outbox FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	k.confirmAll()
	k.await("a failed pass", func() bool { return k.observer.failed.Load() > 0 })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.await("the row to go", func() bool { k.confirmAll(); return k.count("TRUE") == 0 })
}

func TestConnectionIsOpenedAgain(t *testing.T) {
	k := start(t, outbox.Schema)
	k.passes(1)
	k.insert("old", "1 hour")
	if _, err := k.conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'retention'`); err != nil {
		t.Fatal(err)
	}
	k.await("the row to go", func() bool { k.confirmAll(); return k.count("TRUE") == 0 })
}

func TestPartitionsComeAndGo(t *testing.T) {
	for _, withDefault := range []bool{true, false} {
		t.Run(fmt.Sprintf("default partition %t", withDefault), func(t *testing.T) {
			schema := outbox.PartitionedSchema
			if !withDefault {
				schema += ";DROP TABLE outbox_default"
			}
			k := start(t, schema+`;
				CREATE TABLE outbox_p20200101 PARTITION OF outbox FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00');
				INSERT INTO outbox (aggregatetype, aggregateid, type, created_at) VALUES ('a', '1', 'old', '2020-01-01 12:00+00')`)
			k.await("partitions for today and the next two days", func() bool {
				return k.value(`SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox'::regclass AND inhrelid::regclass::text <> 'outbox_default'`) >= 3
			})
			k.insert("young", "-1 hour")
			k.confirmAll() // up to here the old partition may be detached
			k.await("the old partition to be detached", func() bool {
				k.confirmAll()
				return k.value(`SELECT count(*) FROM pg_inherits WHERE inhrelid = to_regclass('outbox_p20200101')`) == 0
			})
			k.await("the old partition to go", func() bool {
				k.confirmAll()
				return k.value(`SELECT count(*) FROM pg_class WHERE relname = 'outbox_p20200101'`) == 0
			})
			if got := k.count("type = 'young'"); got != 1 {
				t.Error("the young row went")
			}
			k.await("word of it", func() bool { return k.observer.dropped.Load() == 1 })
			if got := k.observer.created.Load(); got != 3 {
				t.Errorf("told of %d partitions created", got)
			}
		})
	}
}

// TestDetachedPartitionWaitsForConfirmation detaches a partition with an event
// that is not published, and restarts in between.
func TestDetachedPartitionWaitsForConfirmation(t *testing.T) {
	k := start(t, outbox.PartitionedSchema+`;
		CREATE TABLE outbox_p20200101 PARTITION OF outbox FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')`)
	k.passes(1)
	k.confirmAll()
	k.passes(1)
	if _, err := k.conn.Exec(t.Context(), `INSERT INTO outbox (aggregatetype, aggregateid, type, created_at)
		VALUES ('a', '1', 'late', '2020-01-01 12:00+00')`); err != nil {
		k.await("the partition to be detached", func() bool {
			return k.value(`SELECT count(*) FROM pg_inherits WHERE inhrelid = to_regclass('outbox_p20200101')`) == 0
		})
	}
	k.passes(3)
	if k.value(`SELECT count(*) FROM pg_class WHERE relname = 'outbox_p20200101'`) != 1 {
		t.Fatal("the partition was dropped although its events are not confirmed")
	}
	k.await("the partition to go", func() bool {
		k.confirmAll()
		return k.value(`SELECT count(*) FROM pg_class WHERE relname = 'outbox_p20200101'`) == 0
	})
}

func TestFailureNamesTheRemedy(t *testing.T) {
	k := startWith(t, outbox.Schema, func(o *retention.Options) { o.Column = "written_at" })
	k.insert("old", "1 hour")
	k.await("a failed pass", func() bool { k.confirmAll(); return k.observer.failed.Load() > 0 })
	if err := k.observer.last(); !strings.Contains(failure.RemedyOf(err), "retention.column") {
		t.Errorf("failed with %v, remedy %q", err, failure.RemedyOf(err))
	}
}

const insert = `INSERT INTO outbox (aggregatetype, aggregateid, type, created_at) VALUES ('a', '1', $1, now() - $2::interval)`

// kept is a database with retention at work.
type kept struct {
	t         *testing.T
	conn      *pgx.Conn
	observer  *observer
	confirmed *atomic.Uint64
}

func start(t *testing.T, schema string) kept {
	return startWith(t, schema, func(*retention.Options) {})
}

func startWith(t *testing.T, schema string, adapt func(*retention.Options)) kept {
	t.Helper()
	url := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, url, schema)
	k := kept{t: t, observer: &observer{}, confirmed: new(atomic.Uint64)}
	connect := func(ctx context.Context) (*pgx.Conn, error) {
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			return nil, err
		}
		cfg.RuntimeParams["application_name"] = "retention"
		return pgx.ConnectConfig(ctx, cfg)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	k.conn = conn
	opts := retention.Options{
		Connect:   connect,
		Tables:    []wal.Table{{Schema: "public", Name: "outbox"}},
		After:     200 * time.Millisecond, // a pass each 10 ms
		Column:    "created_at",
		Interval:  10 * time.Millisecond,
		Ahead:     2,
		Confirmed: func() wal.LSN { k.observer.looks.Add(1); return wal.LSN(k.confirmed.Load()) },
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
		_ = conn.Close(context.Background())
	})
	return k
}

func (k kept) insert(typ, age string) {
	k.t.Helper()
	if _, err := k.conn.Exec(k.t.Context(), insert, typ, age); err != nil {
		k.t.Fatal(err)
	}
}

// end is the end of the log.
func (k kept) end() uint64 {
	k.t.Helper()
	var text string
	if err := k.conn.QueryRow(k.t.Context(), `SELECT pg_current_wal_insert_lsn()::text`).Scan(&text); err != nil {
		k.t.Fatal(err)
	}
	lsn, err := pglogrepl.ParseLSN(text)
	if err != nil {
		k.t.Fatal(err)
	}
	return uint64(lsn)
}

// confirmAll confirms all that is committed.
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
	k.await("passes", func() bool { return k.observer.looks.Load() >= from+n })
}

func (k kept) count(where string) int64 { return k.value(`SELECT count(*) FROM outbox WHERE ` + where) }

func (k kept) value(query string) (n int64) {
	k.t.Helper()
	if err := k.conn.QueryRow(k.t.Context(), query).Scan(&n); err != nil {
		k.t.Fatal(err)
	}
	return n
}

func (k kept) await(what string, met func() bool) {
	k.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !met() {
		select {
		case <-deadline.C:
			k.t.Fatalf("waited for %s in vain", what)
		case <-poll.C:
		}
	}
}

// observer counts.
type observer struct {
	deleted, created, dropped, failed, looks atomic.Int64

	mu  sync.Mutex
	err error // the last
}

func (o *observer) last() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

func (o *observer) RetentionDeleted(_ wal.Table, rows int64) { o.deleted.Add(rows) }

func (o *observer) RetentionPartition(_ wal.Table, change retention.PartitionChange) {
	if change == retention.Created {
		o.created.Add(1)
	} else {
		o.dropped.Add(1)
	}
}

func (o *observer) RetentionPassed(_ wal.Table, _ int64, err error) {
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.err = err
		o.failed.Add(1)
	}
}
