package dynamodb_test

import (
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// A client with an earlier estimate of the time makes no lower fence.
func TestPurgedKeysKeepTheirFence(t *testing.T) {
	f := newFixture(t)
	first := claimed(t, f.store(0), key("1"), "a")
	f.clock.advance(-time.Minute)
	s, all := f.store(0), storage.Filter{Scope: "shipping", States: []storage.State{storage.Processing}}
	if n, err := s.Purge(t.Context(), all); err != nil || n != 1 {
		t.Fatalf("purged %d, %v", n, err)
	}
	for _, when := range []struct {
		name string
		d    time.Duration
	}{{"at once", 0}, {"once its end is past", time.Second}, {"by an earlier clock", -time.Hour}} {
		f.clock.advance(when.d)
		s := f.store(0)
		second := claimed(t, s, key("1"), "b")
		if second.Lease.Fence <= first.Lease.Fence || second.Attempts != 1 {
			t.Errorf("%s: attempt %d with fence %d; want the first, beyond %d", when.name, second.Attempts, second.Lease.Fence, first.Lease.Fence)
		}
		if n, err := s.Purge(t.Context(), all); err != nil || n != 1 {
			t.Fatalf("purged %d, %v", n, err)
		}
		first = second
	}
}

// A record of any age may have been written by a client with a later estimate
// of the time.
func TestPurgeTakesWhatWasJustWritten(t *testing.T) {
	f := newFixture(t)
	s := f.store(0)
	if err := s.Complete(t.Context(), claimed(t, s, key("1"), "a").Lease, nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	f.clock.advance(-time.Second)
	purger := must.Get(dynamodb.New(f.client, dynamodb.Options{Table: f.table, Now: f.clock.now}))(t)
	if n, err := purger.Purge(t.Context(), storage.Filter{Scope: "shipping", UnchangedFor: time.Minute}); err != nil || n != 0 {
		t.Errorf("purged %d, %v; want none that is a minute old", n, err)
	}
	if n, err := purger.Purge(t.Context(), storage.Filter{Scope: "shipping"}); err != nil || n != 1 {
		t.Errorf("purged %d, %v; want the one there is", n, err)
	}
}

func TestPurgeLooksAgainBeforeItWrites(t *testing.T) {
	f := newFixture(t)
	s := f.store(0)
	fail := storage.Failure{Terminal: true, Retention: time.Hour}
	for _, id := range []string{"revived", "failed"} {
		if err := s.Fail(t.Context(), claimed(t, s, key(id), "a").Lease, fail); err != nil {
			t.Fatal(err)
		}
	}
	r := &recorder{Client: f.client, afterScan: func() {
		if _, err := s.Release(t.Context(), key("revived")); err != nil {
			t.Error(err)
		}
	}}
	purger := must.Get(dynamodb.New(r, dynamodb.Options{Table: f.table, Now: f.clock.now}))(t)
	if n, err := purger.Purge(t.Context(), storage.Filter{Scope: "shipping"}); err != nil || n != 1 {
		t.Errorf("purged %d, %v; want the one that is still failed", n, err)
	}
	if rec, err := s.Inspect(t.Context(), key("revived")); err != nil || rec.State != storage.Retryable {
		t.Errorf("revived is %s, %v", rec.State, err)
	}
}

// A retry or a release due at once is so for a client taking the time to be a
// second earlier.
func TestDueAtOnceForEveryEstimate(t *testing.T) {
	f := newFixture(t)
	s := f.store(0)
	if err := s.Fail(t.Context(), claimed(t, s, key("failed"), "a").Lease, storage.Failure{Retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	claimed(t, s, key("released"), "a")
	if _, err := s.Release(t.Context(), key("released")); err != nil {
		t.Fatal(err)
	}
	f.clock.advance(-time.Second)
	behind := f.store(0)
	claimed(t, behind, key("failed"), "b")
	claimed(t, behind, key("released"), "b")
}
