package redis_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/hook"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redistest"
)

// Close waits for a round trip without callers, and ends the sharing: further
// calls are made each by itself.
func TestCloseWaitsForASharedRoundTrip(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	hanging, release := make(chan struct{}), make(chan struct{})
	var pipelines atomic.Int64
	var over atomic.Bool
	client.AddHook(aroundPipeline(func(_ []goredis.Cmder, next func() error) error {
		pipelines.Add(1)
		close(hanging)
		<-release
		defer over.Store(true)
		return next()
	}))
	s := newStore(t, client, redis.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	reqs := requests()
	var callers sync.WaitGroup
	callers.Go(func() {
		for n, a := range claimTogether(ctx, s, reqs) {
			if !errors.Is(a.err, context.Canceled) {
				t.Errorf("claim %d: %+v, %v", n, a.Claim, a.err)
			}
		}
	})
	<-hanging
	cancel()
	callers.Wait()

	callers.Go(func() {
		begun := time.Now()
		for shares := true; shares && time.Since(begun) < patience; { // until Close has begun
			shares = false
			hook.RedisYield(s, func(func() int) { shares = true })
			outcome(t, s, key)
		}
		close(release)
	})
	s.Close()
	if !over.Load() {
		t.Error("Close has not waited for the round trip")
	}
	callers.Wait()
	s.Close()

	hook.RedisYield(s, func(func() int) { t.Error("a call after Close waits for company") })
	answers := make([]answer, len(reqs))
	for n, req := range reqs { // the same owners: everything asked was carried out
		callers.Go(func() { answers[n].Claim, answers[n].err = s.Claim(t.Context(), mate(n), req) })
	}
	callers.Wait()
	allFirst(t, answers, reqs)
	if _, _, err := s.CompleteAndClaim(t.Context(), s, answers[0].Lease, nil, time.Hour, mate(mates), request()); err == nil {
		t.Error("a completion and a claim share a round trip after Close")
	}
	for n, a := range answers {
		complete(t, s, a.Lease, "shipped")
		if got := outcome(t, s, mate(n)); got != storage.Duplicate {
			t.Errorf("key %d is %s, want a duplicate", n, got)
		}
	}
	if n := pipelines.Load(); n != 1 {
		t.Errorf("%d pipelines, want one", n)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the client after Close: %v", err)
	}
}
