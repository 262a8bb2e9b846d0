package storetest

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// Times of the scenarios. Times not to pass in a test are long, times to pass
// short.
const (
	long      = time.Hour
	short     = 250 * time.Millisecond
	retention = 24 * time.Hour
)

// Run goes through the contract of Store, and of the subject's Operator, if any.
// Run calls open once, for the whole suite. Without a fake clock the scenarios
// run in parallel, so open must tie all resources to the t of the call.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	s := open(t)
	for _, group := range []struct {
		name      string
		scenarios []scenario
	}{
		{name: "claim", scenarios: claims},
		{name: "fingerprint", scenarios: fingerprints},
		{name: "extend", scenarios: extensions},
		{name: "complete", scenarios: completions},
		{name: "fail", scenarios: failures},
		{name: "forget", scenarios: retentions},
		{name: "key", scenarios: keys},
		{name: "concurrent", scenarios: races},
		{name: "operator", scenarios: operations},
	} {
		t.Run(group.name, func(t *testing.T) {
			if group.name == "operator" && s.Operator == nil {
				t.Skip("the store has no operator")
			}
			for _, sc := range group.scenarios {
				t.Run(sc.name, func(t *testing.T) {
					if s.Advance == nil {
						t.Parallel() // mostly waiting
					}
					sc.run(newBench(t, s))
				})
			}
		})
	}
}

// scenario is a part of the contract.
type scenario struct {
	name string
	run  func(b *bench)
}

// bench is a scenario's equipment: a store, a separate key, and calls that fail
// the test with an unexpected error.
type bench struct {
	*testing.T
	subject Subject
	store   storage.Store
	ctx     context.Context
	key     storage.Key
	owners  int
}

func newBench(t *testing.T, s Subject) *bench {
	return &bench{T: t, subject: s, store: s.Store, ctx: t.Context(), key: storage.Key{Scope: scope(), ID: "key"}}
}

// request is for a long lease, by a new owner.
func (b *bench) request() storage.ClaimRequest {
	b.owners++
	return storage.ClaimRequest{
		Owner: "owner-" + strconv.Itoa(b.owners), Fingerprint: "b1:payload", Lease: long, Retention: retention,
	}
}

// requestFor is for a lease of d.
func (b *bench) requestFor(d time.Duration) storage.ClaimRequest {
	r := b.request()
	r.Lease = d
	return r
}

// claim makes a request answered without an error.
func (b *bench) claim(r storage.ClaimRequest) storage.Claim {
	b.Helper()
	c, err := b.store.Claim(b.ctx, b.key, r)
	if err != nil {
		b.Fatalf("claim: %v", err)
	}
	if c.Layer != "" && c.Layer != storage.LayerStore {
		b.Fatalf("claim: layer %q", c.Layer)
	}
	return c
}

// granted makes a request, and expects a grant as the nth attempt.
func (b *bench) granted(r storage.ClaimRequest, attempts int) storage.Lease {
	b.Helper()
	c := b.claim(r)
	if c.Outcome != storage.Claimed || c.Attempts != attempts {
		b.Fatalf("claim: %s with %d attempts, want claimed with %d", c.Outcome, c.Attempts, attempts)
	}
	if c.Lease.Key != b.key || c.Lease.Owner != r.Owner || c.Lease.Fence <= 0 {
		b.Fatalf("claim: lease %+v for owner %q of key %q", c.Lease, r.Owner, b.key)
	}
	if c.Wait != 0 || len(c.Result) != 0 {
		b.Fatalf("claim: granted, but with wait %s and result %q", c.Wait, c.Result)
	}
	return c.Lease
}

// refused makes a request, and expects the outcome after so many attempts.
func (b *bench) refused(r storage.ClaimRequest, want storage.Outcome, attempts int) storage.Claim {
	b.Helper()
	c := b.claim(r)
	if c.Outcome != want || c.Attempts != attempts || c.Lease != (storage.Lease{}) {
		b.Fatalf("claim: %s with %d attempts and lease %+v, want %s with %d and none", c.Outcome, c.Attempts, c.Lease, want, attempts)
	}
	return c
}

// waits checks a claim's Wait: above 0, at most d.
func (b *bench) waits(c storage.Claim, d time.Duration) {
	b.Helper()
	if c.Wait <= 0 || c.Wait > d+b.subject.tolerance() {
		b.Fatalf("claim: wait %s, want above 0 and at most %s", c.Wait, d)
	}
}

// expect fails the test unless err wraps want, or is nil if want is.
func (b *bench) expect(what string, err, want error) {
	b.Helper()
	if !errors.Is(err, want) {
		b.Fatalf("%s: %v, want %v", what, err, want)
	}
}

// counted checks a record's counts.
func (b *bench) counted(r storage.Record, attempts, vanished, excused int) {
	b.Helper()
	if r.Attempts != attempts || r.Vanished != vanished || r.Excused != excused {
		b.Fatalf("%d attempts, %d vanished, %d excused; want %d, %d, %d",
			r.Attempts, r.Vanished, r.Excused, attempts, vanished, excused)
	}
}

func (b *bench) extend(l storage.Lease, d time.Duration, want error) {
	b.Helper()
	b.expect("extend", b.store.Extend(b.ctx, l, d), want)
}

func (b *bench) complete(l storage.Lease, result string, want error) {
	b.Helper()
	b.expect("complete", b.store.Complete(b.ctx, l, []byte(result), retention), want)
}

func (b *bench) fail(l storage.Lease, f storage.Failure, want error) {
	b.Helper()
	if f.Retention == 0 {
		f.Retention = retention
	}
	b.expect("fail", b.store.Fail(b.ctx, l, f), want)
}

// inspect returns the record, and checks the state.
func (b *bench) inspect(want storage.State) storage.Record {
	b.Helper()
	r, err := b.store.Inspect(b.ctx, b.key)
	if err != nil {
		b.Fatalf("inspect: %v", err)
	}
	if r.State != want || r.Key != b.key {
		b.Fatalf("inspect: %s of key %q, want %s of %q", r.State, r.Key, want, b.key)
	}
	return r
}

// duplicate checks that the key is completed with the result.
func (b *bench) duplicate(result string, attempts int) {
	b.Helper()
	if c := b.refused(b.request(), storage.Duplicate, attempts); !bytes.Equal(c.Result, []byte(result)) {
		b.Fatalf("claim: result %q, want %q", c.Result, result)
	}
}

func (b *bench) pass(d time.Duration) {
	b.Helper()
	b.subject.pass(b.T, d)
}

// inTime checks that f ends without an error. f takes a key from the start to a
// call due before d has passed. If the machine stood still for so long, the
// result says nothing, and f begins again with another key.
func (b *bench) inTime(d time.Duration, f func() error) {
	b.Helper()
	const rounds = 100
	for range rounds {
		begun := time.Now()
		err := f()
		if b.subject.Advance != nil || time.Since(begun) < d-b.subject.tolerance() {
			b.expect("within "+d.String(), err, nil)
			return
		}
		b.key.Scope = scope()
	}
	b.Fatalf("a store's calls took longer than %s, %d times", d, rounds)
}

// unchanged checks that f leaves the record alone.
func (b *bench) unchanged(f func()) {
	b.Helper()
	before, err := b.store.Inspect(b.ctx, b.key)
	if err != nil {
		b.Fatalf("inspect: %v", err)
	}
	f()
	after, err := b.store.Inspect(b.ctx, b.key)
	if err != nil {
		b.Fatalf("inspect: %v", err)
	}
	if !same(before, after) {
		b.Fatalf("the record changed from\n%+v\nto\n%+v", before, after)
	}
}

func same(a, b storage.Record) bool {
	return a.Key == b.Key && a.State == b.State && a.Fingerprint == b.Fingerprint && a.Owner == b.Owner &&
		a.Fence == b.Fence && a.Attempts == b.Attempts && a.Vanished == b.Vanished && a.Excused == b.Excused && a.LeaseUntil.Equal(b.LeaseUntil) && a.RetryAt.Equal(b.RetryAt) &&
		bytes.Equal(a.Result, b.Result) && a.Reason == b.Reason && a.UpdatedAt.Equal(b.UpdatedAt) && a.ExpiresAt.Equal(b.ExpiresAt)
}
