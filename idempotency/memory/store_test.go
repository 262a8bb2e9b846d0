package memory_test

import (
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeClock is moved by hand.
type fakeClock struct{ now time.Time }

func newFakeClock() *fakeClock { return &fakeClock{now: time.Unix(1_700_000_000, 0)} }

func (c *fakeClock) Now() time.Time          { return c.now }
func (c *fakeClock) Advance(d time.Duration) { c.now = c.now.Add(d) }

// withFakeClock returns a subject judged exactly.
func withFakeClock() storetest.Subject {
	clock := newFakeClock()
	s := memory.New(memory.Options{Now: clock.Now})
	return storetest.Subject{Store: s, Operator: s, Advance: clock.Advance, MaxResultBytes: 4096}
}

func TestStoreKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Subject { return withFakeClock() })
}

func TestHistories(t *testing.T) {
	storetest.Histories(t, withFakeClock(), storetest.Options{Steps: steps})
}

func TestHistoriesOfClientsAtOnce(t *testing.T) {
	s := memory.New(memory.Options{})
	storetest.Histories(t, storetest.Subject{Store: s, Operator: s}, storetest.Options{})
}

func key(id int) storage.Key { return storage.Key{Scope: "test", ID: strconv.Itoa(id)} }

func mustClaim(t *testing.T, s storage.Store, k storage.Key) storage.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), k, storage.ClaimRequest{
		Owner: storage.NewOwner(), Fingerprint: "b1:payload", Lease: time.Minute, Retention: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustComplete(t *testing.T, s storage.Store, lease storage.Lease) {
	t.Helper()
	if err := s.Complete(t.Context(), lease, nil, time.Hour); err != nil {
		t.Fatal(err)
	}
}

func TestStoreForgetsTheLeastRecentlyUsed(t *testing.T) {
	s := memory.New(memory.Options{Records: 3})
	leases := make([]storage.Lease, 5)
	for i := range 3 {
		leases[i] = mustClaim(t, s, key(i)).Lease
		mustComplete(t, s, leases[i])
	}
	mustClaim(t, s, key(0)) // used again
	mustClaim(t, s, key(3))
	for i, want := range []storage.State{storage.Completed, storage.Absent, storage.Completed, storage.Processing} {
		if r, err := s.Inspect(t.Context(), key(i)); err != nil || r.State != want {
			t.Errorf("key %d: %s, %v, want %s", i, r.State, err, want)
		}
	}
	again := mustClaim(t, s, key(1))
	if again.Outcome != storage.Claimed || again.Lease.Fence <= leases[1].Fence {
		t.Errorf("%s with fence %d after %d", again.Outcome, again.Lease.Fence, leases[1].Fence)
	}
}

func TestStoreNeverForgetsALiveLease(t *testing.T) {
	clock := newFakeClock()
	s := memory.New(memory.Options{Records: 2, Now: clock.Now})
	var leases []storage.Lease
	for i := range 100 {
		leases = append(leases, mustClaim(t, s, key(i)).Lease)
	}
	if s.Len() != 100 {
		t.Fatalf("%d records of 100 that are worked on", s.Len())
	}
	for _, l := range leases {
		mustComplete(t, s, l)
	}
	for i := range 10 {
		mustComplete(t, s, mustClaim(t, s, key(1000+i)).Lease)
	}
	if s.Len() > 3 {
		t.Errorf("%d records are left, want at most 3", s.Len())
	}
}

func TestStoreForgetsAbandonedLeases(t *testing.T) {
	clock := newFakeClock()
	s := memory.New(memory.Options{Records: 2, Now: clock.Now})
	for i := range 10 {
		mustClaim(t, s, key(i))
		clock.Advance(time.Minute)
	}
	if s.Len() > 2 {
		t.Errorf("%d records", s.Len())
	}
}
