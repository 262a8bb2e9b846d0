package postgres_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
)

// number makes ids that were not used before.
var number atomic.Int64

func newID() string { return fmt.Sprint("bench-", number.Add(1)) }

// Each benchmark does its work and one or more bare round trips in turns, so
// that both meet the same machine, and reports its time as a multiple of theirs:
// of SELECT 1, and of an INSERT of one row, which has to be committed.
func benchmark(b *testing.B, o postgres.StoreOptions, work func(b *testing.B, s *postgres.Store)) {
	pool := database(b, o)
	s := newStore(b, pool, o)
	exec(b, pool, `CREATE TABLE bare (id text PRIMARY KEY)`)
	ctx := b.Context()
	var spent, selects, inserts time.Duration
	timed := func(total *time.Duration, f func()) {
		begun := time.Now()
		f()
		*total += time.Since(begun)
	}
	for b.Loop() {
		timed(&spent, func() { work(b, s) })
		timed(&selects, func() {
			if _, err := pool.Exec(ctx, `SELECT $1::int`, 1); err != nil {
				b.Fatal(err)
			}
		})
		timed(&inserts, func() {
			if _, err := pool.Exec(ctx, `INSERT INTO bare VALUES ($1)`, newID()); err != nil {
				b.Fatal(err)
			}
		})
	}
	b.ReportMetric(0, "ns/op") // would be the sum of all three
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "ns/work")
	b.ReportMetric(float64(spent)/float64(selects), "x-select")
	b.ReportMetric(float64(spent)/float64(inserts), "x-insert")
}

func benchClaim(b *testing.B, s *postgres.Store) idempotency.Claim {
	c, err := s.Claim(b.Context(), key(newID()), request())
	if err != nil || c.Outcome != idempotency.Claimed {
		b.Fatal(c.Outcome, err)
	}
	return c
}

func BenchmarkClaim(b *testing.B) {
	for _, partitioned := range []bool{false, true} {
		b.Run(fmt.Sprintf("partitioned=%t", partitioned), func(b *testing.B) {
			benchmark(b, postgres.StoreOptions{Partitioned: partitioned}, func(b *testing.B, s *postgres.Store) { benchClaim(b, s) })
		})
	}
}

func BenchmarkClaimAndComplete(b *testing.B) {
	benchmark(b, postgres.StoreOptions{}, func(b *testing.B, s *postgres.Store) {
		if err := s.Complete(b.Context(), benchClaim(b, s).Lease, nil, retention); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkDuplicate(b *testing.B) {
	var done bool
	benchmark(b, postgres.StoreOptions{}, func(b *testing.B, s *postgres.Store) {
		c, err := s.Claim(b.Context(), key("done"), request())
		if err == nil && !done {
			done, err = true, s.Complete(b.Context(), c.Lease, nil, retention)
		}
		if err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkTransactional compares a message's Run with the bare transaction of
// the same handler.
func BenchmarkTransactional(b *testing.B) {
	r := newRunner(b, postgres.TransactionalOptions{})
	insert := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO effects VALUES ($1, 1)`, "bench")
		return err
	}
	ctx := b.Context()
	var spent, bare time.Duration
	for b.Loop() {
		begun := time.Now()
		result, err := r.Run(ctx, message(newID()), func(ctx context.Context) ([]byte, error) {
			return nil, insert(ctx, postgres.Tx(ctx))
		})
		if result.Disposition != idempotency.Handled {
			b.Fatal(err)
		}
		spent += time.Since(begun)
		begun = time.Now()
		if err := pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error { return insert(ctx, tx) }); err != nil {
			b.Fatal(err)
		}
		bare += time.Since(begun)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "ns/work")
	b.ReportMetric(float64(spent)/float64(bare), "x-bare-transaction")
}
