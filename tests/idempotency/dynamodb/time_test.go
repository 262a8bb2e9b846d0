package dynamodb_test

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/dynamotest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Two clients with clocks hours apart, and with answers in whole seconds only,
// keep to a lease.
func TestLeasesLastForSkewedClients(t *testing.T) {
	server, clock := dynamotest.Shared(t), newTicker()
	table, client := server.Table(t), server.Client(t, clock.stamp(http.TimeFormat))
	skewed := func(offset time.Duration) *dynamodb.Store {
		return must.Get(dynamodb.New(client, dynamodb.Options{
			Table: table, Margin: -1, Now: func() time.Time { return clock.now().Add(offset) },
		}))(t)
	}
	const (
		lease = 5 * time.Second
		poll  = 100 * time.Millisecond
		late  = 2*time.Second + 2*poll
	)
	for seed := range uint64(16) {
		random := rand.New(rand.NewPCG(seed, 0))
		clock.advance(time.Duration(random.Int64N(int64(time.Second))))
		holder, waiter := skewed(5*time.Hour), skewed(-5*time.Hour)
		// At worst a client knows the time well, and the other does not.
		for range 20 * (seed % 2) {
			if _, err := holder.Inspect(t.Context(), key("1")); err != nil {
				t.Fatal(err)
			}
			clock.advance(poll)
		}
		k := storage.Key{Scope: "skew", ID: storage.NewOwner()}
		req := storage.ClaimRequest{Owner: "holder", Lease: lease, Retention: time.Hour}
		if c, err := holder.Claim(t.Context(), k, req); err != nil || c.Outcome != storage.Claimed {
			t.Fatal(c.Outcome, err)
		}
		begun := clock.now()
		req.Owner = "waiter"
		for {
			clock.advance(time.Duration(random.Int64N(int64(poll))))
			if seed%4 < 2 {
				waiter = skewed(-5 * time.Hour) // with everything to learn
			}
			c, err := waiter.Claim(t.Context(), k, req)
			if err != nil {
				t.Fatal(err)
			}
			passed := clock.now().Sub(begun)
			if c.Outcome == storage.Claimed && passed < lease || c.Outcome != storage.Claimed && passed > lease+late {
				t.Fatalf("seed %d: %s after %s of a lease of %s", seed, c.Outcome, passed, lease)
			}
			if c.Outcome == storage.Claimed {
				break
			}
		}
	}
}

// A client whose HTTP layer hides the header claims no key.
func TestWithoutDateNothingIsClaimed(t *testing.T) {
	server := dynamotest.Shared(t)
	client := server.Client(t, through(func(r *http.Request, next exchange) (*http.Response, error) {
		resp, err := next(r)
		if err == nil {
			resp.Header.Del("Date")
		}
		return resp, err
	}))
	table := server.Table(t)
	s := must.Get(dynamodb.New(client, dynamodb.Options{Table: table}))(t)
	if c, err := s.Claim(t.Context(), key("1"), request("a")); err == nil || storage.Answered(err) {
		t.Errorf("%s, %v; want an error", c.Outcome, err)
	}
	plain := must.Get(dynamodb.New(server.Client(t), dynamodb.Options{Table: table}))(t)
	if r, err := plain.Inspect(t.Context(), key("1")); err != nil || r.State != storage.Absent {
		t.Errorf("the key is %s, %v", r.State, err)
	}
}

// The clocks of DynamoDB's servers may be apart: leases end later by as much.
func TestMarginPutsOffTheEnd(t *testing.T) {
	f := newFixture(t)
	for margin, want := range map[time.Duration]time.Duration{-1: 0, 0: time.Second, 3 * time.Second: 3 * time.Second} {
		s := exactly(must.Get(dynamodb.New(f.client, dynamodb.Options{Table: f.table, Margin: margin, Now: f.clock.now}))(t))
		k := storage.Key{Scope: "margin", ID: want.String()}
		lease := claimed(t, s, k, "a").Lease
		c, err := s.Claim(t.Context(), k, request("b"))
		if more := c.Wait - request("b").Lease; err != nil || more != want {
			t.Errorf("margin %s: wait %s, %v; want %s more than the lease", margin, c.Wait, err, want)
		}
		if err := s.Fail(t.Context(), lease, storage.Failure{RetryAfter: time.Minute, Retention: time.Hour}); err != nil {
			t.Fatal(err)
		}
		c, err = s.Claim(t.Context(), k, request("b"))
		if more := c.Wait - time.Minute; err != nil || more != want {
			t.Errorf("margin %s: wait %s, %v; want %s more than the retry's", margin, c.Wait, err, want)
		}
	}
}
