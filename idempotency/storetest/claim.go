package storetest

import (
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

var claims = []scenario{
	{"absent key", func(b *bench) {
		b.inspect(storage.Absent)
		req := b.request()
		lease := b.granted(req, 1)
		r := b.inspect(storage.Processing)
		if r.Owner != req.Owner || r.Fence != lease.Fence || r.Attempts != 1 || r.Fingerprint != req.Fingerprint {
			b.Fatalf("record %+v of lease %+v", r, lease)
		}
		b.near("lease", r.LeaseUntil.Sub(r.UpdatedAt), req.Lease)
		b.near("retention", r.ExpiresAt.Sub(r.UpdatedAt), req.Retention)
	}},
	{"live lease", func(b *bench) {
		b.granted(b.request(), 1)
		b.unchanged(func() { b.waits(b.refused(b.request(), storage.InProgress, 1), long) })
	}},
	{"lease is over", func(b *bench) {
		first := b.granted(b.requestFor(short), 1)
		b.pass(short)
		second := b.granted(b.request(), 2)
		b.above(second, first)
		third := b.refused(b.request(), storage.InProgress, 2)
		b.waits(third, long)
	}},
	{"lease is over, what vanished is counted", func(b *bench) {
		b.granted(b.requestFor(short), 1)
		b.pass(short)
		c := b.claim(b.requestFor(short))
		if c.Outcome != storage.Claimed || c.Attempts != 2 || c.Vanished != 1 {
			b.Fatalf("claim: %+v", c)
		}
		b.counted(b.inspect(storage.Processing), 2, 1, 0)
		b.pass(short)
		req := b.request()
		b.granted(req, 3)
		if again := b.claim(req); again.Attempts != 3 || again.Vanished != 2 {
			b.Fatalf("claim, repeated: %+v", again)
		}
		b.fail(b.claim(req).Lease, storage.Failure{}, nil)
		if c := b.claim(b.request()); c.Outcome != storage.Claimed || c.Attempts != 4 || c.Vanished != 2 {
			b.Fatalf("claim after a failure: %+v", c)
		}
	}},
	{"waiting as told is enough", func(b *bench) {
		b.granted(b.requestFor(short), 1)
		c := b.claim(b.requestFor(short))
		for rounds := 0; c.Outcome == storage.InProgress; rounds++ {
			if rounds == 2 {
				b.Fatal("in progress even so")
			}
			b.pass(c.Wait)
			c = b.claim(b.requestFor(short))
		}
		if c.Outcome != storage.Claimed {
			b.Fatalf("claim: %s", c.Outcome)
		}
	}},
	{"repeated by the same owner", func(b *bench) {
		req := b.request()
		first := b.granted(req, 1)
		if again := b.granted(req, 1); again != first {
			b.Fatalf("lease %+v, then %+v", first, again)
		}
	}},
	{"repeated by the same owner, the lease starts anew", func(b *bench) {
		req := b.requestFor(short)
		first := b.granted(req, 1)
		req.Lease = long
		if again := b.granted(req, 1); again != first {
			b.Fatalf("lease %+v, then %+v", first, again)
		}
		b.pass(short)
		b.refused(b.request(), storage.InProgress, 1)
	}},
	{"repeated by the same owner after the lease", func(b *bench) {
		req := b.requestFor(short)
		first := b.granted(req, 1)
		b.pass(short)
		req.Lease = long
		if again := b.granted(req, 1); again != first {
			b.Fatalf("lease %+v, then %+v", first, again)
		}
		b.refused(b.request(), storage.InProgress, 1)
	}},
	{"repeated by an owner that was succeeded", func(b *bench) {
		req := b.requestFor(short)
		b.granted(req, 1)
		b.pass(short)
		b.granted(b.request(), 2)
		b.refused(req, storage.InProgress, 2)
	}},
	{"completed", func(b *bench) {
		lease := b.granted(b.request(), 1)
		b.complete(lease, "result", nil)
		b.unchanged(func() {
			b.duplicate("result", 1)
			b.duplicate("result", 1)
		})
	}},
	{"completed, repeated by the same owner", func(b *bench) {
		req := b.request()
		b.complete(b.granted(req, 1), "result", nil)
		b.refused(req, storage.Duplicate, 1)
	}},
	{"retryable, not due", func(b *bench) {
		b.fail(b.granted(b.request(), 1), storage.Failure{RetryAfter: long, Reason: "no luck"}, nil)
		b.unchanged(func() {
			c := b.refused(b.request(), storage.NotDue, 1)
			b.waits(c, long)
			b.reason(c.Reason, "no luck")
		})
	}},
	{"retryable, due", func(b *bench) {
		first := b.granted(b.request(), 1)
		b.fail(first, storage.Failure{RetryAfter: short, Reason: "no luck"}, nil)
		b.pass(short)
		c := b.claim(b.request())
		if c.Outcome != storage.Claimed || c.Attempts != 2 {
			b.Fatalf("claim: %s with %d attempts", c.Outcome, c.Attempts)
		}
		b.reason(c.Reason, "no luck")
		b.above(c.Lease, first)
	}},
	{"retryable at once", func(b *bench) {
		b.fail(b.granted(b.request(), 1), storage.Failure{}, nil)
		b.granted(b.request(), 2)
	}},
	{"failed", func(b *bench) {
		b.fail(b.granted(b.request(), 1), storage.Failure{Terminal: true, Reason: "hopeless"}, nil)
		b.unchanged(func() { b.reason(b.refused(b.request(), storage.GivenUp, 1).Reason, "hopeless") })
	}},
	{"attempts are counted without end", func(b *bench) {
		var last storage.Lease
		for n := 1; n <= 20; n++ {
			lease := b.granted(b.request(), n)
			if n > 1 {
				b.above(lease, last)
			}
			b.fail(lease, storage.Failure{}, nil)
			last = lease
		}
	}},
	{"to the moment", func(b *bench) {
		if b.subject.Advance == nil {
			b.Skip("the store's clock cannot be set")
		}
		b.granted(b.requestFor(short), 1)
		b.pass(short - time.Microsecond)
		if c := b.refused(b.request(), storage.InProgress, 1); c.Wait != time.Microsecond {
			b.Fatalf("wait %s", c.Wait)
		}
		b.pass(time.Microsecond)
		b.granted(b.request(), 2)
	}},
}

// near checks a time a store computed.
func (b *bench) near(what string, got, want time.Duration) {
	b.Helper()
	if (got - want).Abs() > b.subject.tolerance() {
		b.Fatalf("%s: %s, want %s", what, got, want)
	}
}

// above checks the order of the fences.
func (b *bench) above(later, earlier storage.Lease) {
	b.Helper()
	if later.Fence <= earlier.Fence {
		b.Fatalf("fence %d after %d", later.Fence, earlier.Fence)
	}
}

func (b *bench) reason(got, want string) {
	b.Helper()
	if got != want {
		b.Fatalf("reason %q, want %q", got, want)
	}
}
