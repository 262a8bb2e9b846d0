package redis_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/internal/redistest"
)

// benchResult is what a completed key keeps in a benchmark.
var benchResult = make([]byte, 100)

// bare is what a store's operations are compared with: one round trip of the
// bare client that writes.
func bare(ctx context.Context, client *goredis.Client, n int64) error {
	return client.Set(ctx, "bare:"+strconv.FormatInt(n, 10), benchResult, time.Hour).Err()
}

func BenchmarkBareRoundTrip(b *testing.B) {
	client := redistest.Start(b).Client(b)
	var n int64
	for b.Loop() {
		n++
		if err := bare(b.Context(), client, n); err != nil {
			b.Fatal(err)
		}
	}
}

// spent is the time that each kind of call took, over all goroutines.
type spent struct{ bare, claim, complete, duplicate atomic.Int64 }

// round handles one message, and its duplicate, next to a bare round trip: what
// else the machine does slows all of them alike.
func (s *spent) round(ctx context.Context, client *goredis.Client, store *redis.Store, n int64) error {
	k := idempotency.Key{Scope: "bench", ID: strconv.FormatInt(n, 10)}
	t0 := time.Now()
	if err := bare(ctx, client, n); err != nil {
		return err
	}
	t1 := time.Now()
	c, err := store.Claim(ctx, k, request())
	if err != nil {
		return err
	}
	t2 := time.Now()
	if err := store.Complete(ctx, c.Lease, benchResult, time.Hour); err != nil {
		return err
	}
	t3 := time.Now()
	if _, err := store.Claim(ctx, k, request()); err != nil {
		return err
	}
	s.bare.Add(int64(t1.Sub(t0)))
	s.claim.Add(int64(t2.Sub(t1)))
	s.complete.Add(int64(t3.Sub(t2)))
	s.duplicate.Add(int64(time.Since(t3)))
	return nil
}

// report gives each call's time as a ratio to a bare round trip's, and how many
// messages the store would handle per second if it did nothing else.
func (s *spent) report(b *testing.B, workers int) {
	perBare := func(ns int64) float64 { return float64(ns) / float64(s.bare.Load()) }
	b.ReportMetric(perBare(s.claim.Load()), "claim/bare")
	b.ReportMetric(perBare(s.complete.Load()), "complete/bare")
	b.ReportMetric(perBare(s.duplicate.Load()), "duplicate/bare")
	handled := time.Duration(s.claim.Load()+s.complete.Load()).Seconds() / float64(workers)
	b.ReportMetric(float64(b.N)/handled, "messages/s")
	b.ReportMetric(float64(s.claim.Load()+s.complete.Load())/float64(b.N)/1e3, "added-µs/message")
}

func BenchmarkClaimComplete(b *testing.B) {
	client := redistest.Start(b).Client(b)
	store := newStore(b, client, redis.Options{})
	var s spent
	var n int64
	for b.Loop() {
		n++
		if err := s.round(b.Context(), client, store, n); err != nil {
			b.Fatal(err)
		}
	}
	s.report(b, 1)
}

func BenchmarkClaimCompleteParallel(b *testing.B) {
	client := redistest.Start(b).Client(b)
	store := newStore(b, client, redis.Options{})
	var (
		s          spent
		n, workers atomic.Int64
	)
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		workers.Add(1)
		for pb.Next() {
			if err := s.round(b.Context(), client, store, n.Add(1)); err != nil {
				b.Error(err)
				return
			}
		}
	})
	s.report(b, int(workers.Load()))
}
