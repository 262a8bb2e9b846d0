package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
)

// idAt returns a UUIDv7 made at a time, with a number.
func idAt(at time.Time, n int) string {
	ms := fmt.Sprintf("%012x", at.UnixMilli())
	return fmt.Sprintf("%s-%s-7abc-8def-%012x", ms[:8], ms[8:], n)
}

const day = 24 * time.Hour

// fill makes n keys, made at a time, and completes them.
func fill(t *testing.T, s *postgres.Store, n int, id func(n int) string) {
	t.Helper()
	for i := range n {
		c := claim(t, s, key(id(i)), request())
		if err := s.Complete(limited(t), c.Lease, nil, retention); err != nil {
			t.Fatal(err)
		}
	}
}

func expire(t *testing.T, pool *pgxpool.Pool, where string) {
	t.Helper()
	exec(t, pool, `UPDATE idempotency_keys SET expires_at = clock_timestamp() - interval '1 second' WHERE `+where)
}

func TestSweepDeletesWhatExpired(t *testing.T) {
	for _, partitioned := range []bool{false, true} {
		t.Run(fmt.Sprintf("partitioned %t", partitioned), func(t *testing.T) {
			o := postgres.Options{Partitioned: partitioned}
			pool := database(t, o)
			s := newStore(t, pool, o)
			fill(t, s, 300, func(n int) string { return fmt.Sprint("id-", n) })
			expire(t, pool, `id < 'id-2'`)
			expired := query[int](t, pool, `SELECT count(*) FROM idempotency_keys WHERE expires_at < now()`)

			for _, want := range []int{expired, 0} {
				if n, err := s.Sweep(limited(t), 7); n != want || err != nil {
					t.Fatalf("swept %d, %v; want %d", n, err, want)
				}
			}
			if left := query[int](t, pool, `SELECT count(*) FROM idempotency_keys`); left != 300-expired {
				t.Errorf("%d rows are left of %d that live", left, 300-expired)
			}
		})
	}
}

// A sweep passes over a row being changed: no wait, no deletion.
func TestSweepPassesOverWhatIsBeingChanged(t *testing.T) {
	pool := database(t, postgres.Options{})
	s := newStore(t, pool, postgres.Options{})
	fill(t, s, 10, func(n int) string { return fmt.Sprint(n) })
	expire(t, pool, `true`)
	tx := begin(t, pool)
	if _, err := tx.Exec(limited(t), `UPDATE idempotency_keys SET expires_at = 'infinity' WHERE id = '3'`); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(limited(t), 0); n != 9 || err != nil {
		t.Errorf("swept %d, %v; want 9", n, err)
	}
	if err := tx.Commit(limited(t)); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(limited(t), 0); n != 0 || err != nil {
		t.Errorf("swept %d, %v; want none", n, err)
	}
}

// Sweeps and claims of expired keys at the same time: each claim is granted,
// with the first attempt, and none is swept.
func TestSweepAmongClaims(t *testing.T) {
	pool := database(t, postgres.Options{})
	s := newStore(t, pool, postgres.Options{})
	const keys = 300
	fill(t, s, keys, func(n int) string { return fmt.Sprint(n) })
	expire(t, pool, `true`)
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() {
			for range 20 {
				if _, err := s.Sweep(limited(t), 10); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for n := range keys {
		if c := claim(t, s, key(fmt.Sprint(n)), request()); c.Attempts != 1 {
			t.Errorf("key %d: attempt %d", n, c.Attempts)
		}
	}
	running.Wait()
	if n := query[int](t, pool, `SELECT count(*) FROM idempotency_keys`); n != keys {
		t.Errorf("%d keys are left of %d", n, keys)
	}
}

// partitions returns a pool on a new database with the partitioned table. Only
// the tests lock the partitions: a sweep passes over locked partitions.
func partitions(t *testing.T, o postgres.Options) *pgxpool.Pool {
	t.Helper()
	pool := database(t, o)
	exec(t, pool, `DO $$ DECLARE part regclass; BEGIN
		FOR part IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'idempotency_keys'::regclass LOOP
			EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', part);
		END LOOP; END $$`)
	return pool
}

// A partition of an earlier day is truncated when the last row has expired, and
// not before.
func TestSweepTruncates(t *testing.T) {
	o := postgres.Options{Partitioned: true}
	pool := partitions(t, o)
	s := newStore(t, pool, o)
	now := query[time.Time](t, pool, `SELECT now()`)
	old, older := now.Add(-9*day), now.Add(-10*day)
	fill(t, s, 50, func(n int) string { return idAt(old, n) })
	fill(t, s, 50, func(n int) string { return idAt(older, n) })
	fill(t, s, 50, func(n int) string { return idAt(now, n) })
	sweep := func(want int) {
		t.Helper()
		if n, err := s.Sweep(limited(t), 0); n != want || err != nil {
			t.Errorf("swept %d, %v; want %d", n, err, want)
		}
	}
	sweep(0)
	expire(t, pool, `id <> '`+idAt(old, 7)+`'`)
	sweep(100) // all of older, and a batch of today's
	expire(t, pool, `true`)
	sweep(50)
	if n := query[int64](t, pool, `SELECT sum(pg_relation_size(inhrelid))::bigint FROM pg_inherits
		WHERE inhparent = 'idempotency_keys'::regclass AND inhrelid <> to_regclass($1)`,
		fmt.Sprintf("idempotency_keys_%02d", now.UnixMilli()/day.Milliseconds()%32)); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
	claim(t, s, key(idAt(old, 7)), request())
}

// A partition with a live key is not locked. A live key just before the lock
// keeps the partition from being truncated.
func TestSweepLooksTwice(t *testing.T) {
	o := postgres.Options{Partitioned: true}
	pool := partitions(t, o)
	s := newStore(t, pool, o)
	old := query[time.Time](t, pool, `SELECT now()`).Add(-9 * day)
	fill(t, s, 2, func(n int) string { return idAt(old, n) })
	locks := 0
	sweeper := newStore(t, connect(t, pool.Config().ConnString(), traced(&tracer{
		before: func(_ *pgx.Conn, sql string) {
			if strings.Contains(sql, "LOCK TABLE") {
				locks++
				claim(t, s, key(idAt(old, 2)), request())
			}
		},
		after: func(*pgx.Conn, string) {},
	})), o)
	expire(t, pool, `id = '`+idAt(old, 0)+`'`)
	for _, want := range []int{0, 1} {
		if n, err := sweeper.Sweep(limited(t), 0); n != 0 || err != nil || locks != want {
			t.Errorf("swept %d, %v with %d locks; want none with %d", n, err, locks, want)
		}
		expire(t, pool, `id <> '`+idAt(old, 2)+`'`)
	}
	if n := query[int](t, pool, `SELECT count(*) FROM idempotency_keys`); n != 3 {
		t.Errorf("%d keys are left of 3", n)
	}
}

// A sweep does not disturb users of a partition; the next sweep truncates it.
func TestSweepLeavesPartitionInUse(t *testing.T) {
	o := postgres.Options{Partitioned: true}
	pool := partitions(t, o)
	s := newStore(t, pool, o)
	old := query[time.Time](t, pool, `SELECT now()`).Add(-9 * day)
	fill(t, s, 1, func(n int) string { return idAt(old, n) })
	expire(t, pool, `true`)
	tx := begin(t, pool)
	if _, err := tx.Exec(limited(t), `SELECT FROM idempotency_keys FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(limited(t), 0); n != 0 || err != nil {
		t.Errorf("swept %d, %v; want none", n, err)
	}
	if err := tx.Rollback(limited(t)); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(limited(t), 0); n != 1 || err != nil {
		t.Errorf("swept %d, %v; want 1", n, err)
	}
}

// A statement about a key of the partitioned table locks a single partition,
// also in a plan kept by the server.
func TestOneKeyLocksOnePartition(t *testing.T) {
	o := postgres.Options{Partitioned: true}
	pool := database(t, o, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
		c.MaxConns = 1
	})
	tx := begin(t, pool)
	in := newStore(t, sameTransaction{tx}, o)
	claim(t, in, key(idAt(time.Now(), 1)), request())
	rows, err := tx.Query(limited(t), `SELECT DISTINCT relation::regclass::text FROM pg_locks WHERE pid = pg_backend_pid()
		AND relation::regclass::text LIKE 'idempotency_keys_%' AND NOT relation::regclass::text LIKE '%pkey'`)
	if err != nil {
		t.Fatal(err)
	}
	var locked []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		locked = append(locked, name)
	}
	if len(locked) != 1 {
		t.Errorf("a claim locks %s", strings.Join(locked, ", "))
	}
}

func TestPurge(t *testing.T) {
	for _, partitioned := range []bool{false, true} {
		t.Run(fmt.Sprintf("partitioned %t", partitioned), func(t *testing.T) {
			o := postgres.Options{Partitioned: partitioned}
			pool := database(t, o)
			s := newStore(t, pool, o)
			const keys = 2500 // more than two batches
			fill(t, s, 1, func(int) string { return idAt(time.Now(), 1) })
			exec(t, pool, `INSERT INTO idempotency_keys SELECT (k).* FROM (SELECT jsonb_populate_record(idempotency_keys,
				jsonb_build_object('id', 'id-' || n`+map[bool]string{true: `, 'slot', -1`}[partitioned]+`)) AS k
				FROM idempotency_keys, generate_series(1, $1) AS n) AS more`, keys)
			claim(t, s, key("running"), request())
			claim(t, s, storage.Key{Scope: "another", ID: "id"}, request())

			n, err := s.Purge(limited(t), storage.Filter{Scope: "test", UnchangedFor: time.Hour})
			if n != 0 || err != nil {
				t.Errorf("unchanged for an hour: purged %d, %v", n, err)
			}
			n, err = s.Purge(limited(t), storage.Filter{Scope: "test"})
			if n != keys+1 || err != nil {
				t.Errorf("purged %d, %v; want %d", n, err, keys+1)
			}
			if left := query[int](t, pool, `SELECT count(*) FROM idempotency_keys`); left != 2 {
				t.Errorf("%d rows are left, want 2", left)
			}
		})
	}
}

// A store sweeps by itself when asked to, also under a Runner.
func TestMaintainSweeps(t *testing.T) {
	o := postgres.Options{SweepEvery: time.Millisecond}
	pool := database(t, o)
	store, err := postgres.NewTransactional(pool, o)
	if err != nil {
		t.Fatal(err)
	}
	runner := newProcessor(t, idempotency.Options{Store: store, MaxAttempts: -1})
	req := request()
	req.Lease, req.Retention = time.Millisecond, time.Millisecond
	claim(t, store.Store, key("a"), req)
	ctx, cancel := context.WithCancel(limited(t))
	done := make(chan struct{})
	go func() {
		defer close(done)
		runner.Maintain(ctx, func(err error) { t.Error(err) })
	}()
	await.Until(t, "the row to be swept", func() bool {
		var n int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM idempotency_keys`).Scan(&n)
		return err == nil && n == 0
	})
	cancel()
	<-done
}
