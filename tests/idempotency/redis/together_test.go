package redis_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redistest"
)

// A completion and the claim of another key are a single round trip, each with a
// separate answer.
func TestCompleteAndClaim(t *testing.T) {
	for name, c := range map[string]struct {
		before            func(t *testing.T, s *redis.Store, lease *storage.Lease)
		outcome           storage.Outcome // of the claim
		completed, denied error
	}{
		"both": {outcome: storage.Claimed},
		"a lease that is lost": {
			before:  func(_ *testing.T, _ *redis.Store, lease *storage.Lease) { lease.Owner = "somebody else" },
			outcome: storage.Claimed, completed: storage.ErrLeaseLost,
		},
		"a duplicate": {
			before: func(t *testing.T, s *redis.Store, _ *storage.Lease) {
				complete(t, s, claim(t, s, mate(1), request()), "")
			},
			outcome: storage.Duplicate,
		},
		"in progress": {
			before:  func(t *testing.T, s *redis.Store, _ *storage.Lease) { claim(t, s, mate(1), request()) },
			outcome: storage.InProgress,
		},
		"another payload": {
			before: func(t *testing.T, s *redis.Store, _ *storage.Lease) {
				req := request()
				req.Fingerprint = "v1:other"
				claim(t, s, mate(1), req)
			},
			denied: storage.ErrMismatch,
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := redistest.Shared(t).Client(t)
			trips := 0
			client.AddHook(aroundPipeline(func(cmds []goredis.Cmder, next func() error) error {
				if len(cmds) == 2 {
					trips++
				}
				return next()
			}))
			s := newStore(t, client, redis.Options{})
			lease := claim(t, s, mate(0), request())
			if c.before != nil {
				c.before(t, s, &lease)
			}
			req := request()
			req.Fingerprint = "v1:this"
			got, claimErr, err := s.CompleteAndClaim(t.Context(), s, lease, []byte("shipped"), time.Hour, mate(1), req)
			if !errors.Is(err, c.completed) || !errors.Is(claimErr, c.denied) || got.Outcome != c.outcome {
				t.Errorf("completed: %v; claimed: %+v, %v", err, got, claimErr)
			}
			if got.Outcome == storage.Claimed && (got.Lease.Key != mate(1) || got.Lease.Owner != req.Owner) {
				t.Errorf("the lease is %+v", got.Lease)
			}
			record, err := s.Inspect(t.Context(), mate(0))
			if want := map[bool]storage.State{true: storage.Completed, false: storage.Processing}[c.completed == nil]; err != nil || record.State != want {
				t.Errorf("the first is %s, %v; want %s", record.State, err, want)
			}
			if trips != 1 {
				t.Errorf("%d round trips", trips)
			}
		})
	}
}

// A lost answer says nothing about the other answer.
func TestCompleteAndClaimThatBreaks(t *testing.T) {
	for lost, want := range map[int]struct{ completed, claimed bool }{0: {false, false}, 1: {true, false}} {
		first, second := mate(2*lost), mate(2*lost+1)
		client := redistest.Shared(t).Client(t)
		client.AddHook(aroundPipeline(func(cmds []goredis.Cmder, next func() error) error {
			err := next()
			for _, cmd := range cmds[lost:] {
				cmd.SetErr(io.EOF)
			}
			return errors.Join(io.EOF, err)
		}))
		s := newStore(t, client, redis.Options{})
		lease, req := claim(t, s, first, request()), request()
		_, claimErr, err := s.CompleteAndClaim(t.Context(), s, lease, nil, time.Hour, second, req)
		if storage.Answered(err) != want.completed || storage.Answered(claimErr) != want.claimed {
			t.Errorf("from answer %d on they are lost: completed: %v; claimed: %v", lost, err, claimErr)
		}
		complete(t, s, lease, "") // again
		if again, err := s.Claim(t.Context(), second, req); err != nil || again.Outcome != storage.Claimed || again.Attempts != 1 {
			t.Errorf("claimed again by the same owner: %+v, %v", again, err)
		}
	}
}

func TestCompleteAndClaimWithoutTheScripts(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	s := newStore(t, client, redis.Options{})
	lease := claim(t, s, mate(0), request())
	client.AddHook(beforePipeline(func() {
		if err := server.Client(t).ScriptFlush(t.Context()).Err(); err != nil {
			t.Error(err)
		}
	}))
	req := request()
	_, claimErr, err := s.CompleteAndClaim(t.Context(), s, lease, nil, time.Hour, mate(1), req)
	if err != nil || storage.Answered(claimErr) {
		t.Errorf("completed: %v; claimed: %v", err, claimErr)
	}
	claim(t, s, mate(1), req) // by the message's own turn
}

// A claim or completion is asked for by itself if others would be held up, or
// waited for.
func TestCompleteAndClaimApart(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	lease := claim(t, newStore(t, client, redis.Options{}), mate(0), request())
	for name, c := range map[string]struct {
		options redis.Options
		result  []byte
		around  bool
	}{
		"a store around it": {around: true}, // the outer Complete and Claim are to be called
		"a large result":    {result: []byte(strings.Repeat("x", 5<<10))},
		"replicas":          {options: redis.Options{WaitReplicas: 1}},
	} {
		s := newStore(t, client, c.options)
		var self storage.Store = s
		if c.around {
			self = struct{ *redis.Store }{s}
		}
		if _, _, err := s.CompleteAndClaim(t.Context(), self, lease, c.result, time.Hour, mate(1), request()); err == nil {
			t.Errorf("%s: no error", name)
		}
		for n, want := range []storage.State{storage.Processing, storage.Absent} {
			if r, err := s.Inspect(t.Context(), mate(n)); err != nil || r.State != want {
				t.Errorf("%s: key %d is %s, %v; want %s", name, n, r.State, err, want)
			}
		}
	}
}
