package redis_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redistest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

func TestMain(m *testing.M) { pgtest.Main(redistest.With(testserver.Waiting(m))) }

// newStore returns a store with separate keys, closed at the end of the test.
func newStore(t testing.TB, client goredis.UniversalClient, o redis.Options) *redis.Store {
	t.Helper()
	if o.Prefix == "" {
		o.Prefix = prefix(t)
	}
	s, err := redis.New(client, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// newProcessor returns a Processor, closed at the end of the test.
func newProcessor(t testing.TB, o idempotency.Options) *idempotency.Processor {
	t.Helper()
	p := must.Get(idempotency.New(o))(t)
	t.Cleanup(p.Close)
	return p
}

// prefixes are the running tests' prefixes, by testing.TB.
var prefixes sync.Map

// prefix returns the test's prefix, new for each run.
func prefix(t testing.TB) string {
	p, _ := prefixes.LoadOrStore(t, t.Name()+"-"+storage.NewOwner())
	return p.(string)
}

// key is most tests' key.
var key = storage.Key{Scope: "shipping", ID: "order-1"}

// request asks for a lease no test outlives.
func request() storage.ClaimRequest {
	return storage.ClaimRequest{Owner: storage.NewOwner(), Lease: time.Hour, Retention: 24 * time.Hour}
}

// shortLease is short enough for a test to wait for.
func shortLease(d time.Duration) storage.ClaimRequest {
	r := request()
	r.Lease = d
	return r
}

// claim claims the key, and the claim must be granted.
func claim(t testing.TB, s *redis.Store, k storage.Key, req storage.ClaimRequest) storage.Lease {
	t.Helper()
	c, err := s.Claim(t.Context(), k, req)
	if err != nil || c.Outcome != storage.Claimed {
		t.Fatalf("claim %s: %s, %v, want claimed", k, c.Outcome, err)
	}
	return c.Lease
}

func complete(t testing.TB, s *redis.Store, lease storage.Lease, result string) {
	t.Helper()
	if err := s.Complete(t.Context(), lease, []byte(result), time.Hour); err != nil {
		t.Fatal(err)
	}
}

// outcome claims the key for somebody else.
func outcome(t testing.TB, s *redis.Store, k storage.Key) storage.Outcome {
	t.Helper()
	c, err := s.Claim(t.Context(), k, request())
	if err != nil {
		t.Fatal(err)
	}
	return c.Outcome
}

// patience bounds a test's waits: a minute, for slow and busy machines.
const patience = time.Minute

// tooFew is the error's text where too few replicas have a write.
const tooFew = "too few replicas have the write"

func tooFewReplicas(err error) bool { return err != nil && strings.Contains(err.Error(), tooFew) }
