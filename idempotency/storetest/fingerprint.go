package storetest

import "github.com/cdc-outbox/cdc-outbox/idempotency/storage"

// states brings the key into each state with a record.
var states = []struct {
	name  string
	state storage.State
	enter func(b *bench, req storage.ClaimRequest)
}{
	{"processing", storage.Processing, func(b *bench, req storage.ClaimRequest) { b.granted(req, 1) }},
	{"processing, lease over", storage.Processing, func(b *bench, req storage.ClaimRequest) {
		req.Lease = short
		b.granted(req, 1)
		b.pass(short)
	}},
	{"completed", storage.Completed, func(b *bench, req storage.ClaimRequest) {
		b.complete(b.granted(req, 1), "result", nil)
	}},
	{"retryable, not due", storage.Retryable, func(b *bench, req storage.ClaimRequest) {
		b.fail(b.granted(req, 1), storage.Failure{RetryAfter: long}, nil)
	}},
	{"retryable, due", storage.Retryable, func(b *bench, req storage.ClaimRequest) {
		b.fail(b.granted(req, 1), storage.Failure{}, nil)
	}},
	{"failed", storage.Failed, func(b *bench, req storage.ClaimRequest) {
		b.fail(b.granted(req, 1), storage.Failure{Terminal: true}, nil)
	}},
}

var fingerprints = func() []scenario {
	list := []scenario{
		{"another payload from the same owner", func(b *bench) {
			req := b.request()
			b.granted(req, 1)
			req.Fingerprint = "b1:another"
			b.mismatch(req)
		}},
		{"a granted claim leaves its own", func(b *bench) {
			req := b.request()
			req.Fingerprint = ""
			b.fail(b.granted(req, 1), storage.Failure{}, nil)
			b.fail(b.granted(b.request(), 2), storage.Failure{}, nil)
			other := b.request()
			other.Fingerprint = "b1:another"
			b.mismatch(other)
		}},
		{"a granted claim without one keeps the record's", func(b *bench) {
			b.fail(b.granted(b.request(), 1), storage.Failure{}, nil)
			req := b.request()
			req.Fingerprint = ""
			b.fail(b.granted(req, 2), storage.Failure{}, nil)
			other := b.request()
			other.Fingerprint = "b1:another"
			b.mismatch(other)
		}},
		{"a refused claim leaves nothing", func(b *bench) {
			req := b.request()
			req.Fingerprint = ""
			b.granted(req, 1)
			b.unchanged(func() { b.refused(b.request(), storage.InProgress, 1) })
		}},
	}
	for _, s := range states {
		list = append(list,
			scenario{"another payload, " + s.name, func(b *bench) {
				s.enter(b, b.request())
				other := b.request()
				other.Fingerprint = "b1:another"
				b.mismatch(other)
			}},
			scenario{"another method, " + s.name, func(b *bench) {
				s.enter(b, b.request())
				other := b.request()
				other.Fingerprint = "j1:payload"
				b.claim(other)
			}},
			scenario{"none, " + s.name, func(b *bench) {
				s.enter(b, b.request())
				other := b.request()
				other.Fingerprint = ""
				b.claim(other)
			}},
			scenario{"none before, " + s.name, func(b *bench) {
				req := b.request()
				req.Fingerprint = ""
				s.enter(b, req)
				b.claim(b.request())
			}},
		)
	}
	return list
}()

// mismatch makes a request, and expects ErrMismatch.
func (b *bench) mismatch(r storage.ClaimRequest) {
	b.Helper()
	b.unchanged(func() {
		c, err := b.store.Claim(b.ctx, b.key, r)
		b.expect("claim", err, storage.ErrMismatch)
		if c.Outcome != 0 || len(c.Result) > 0 {
			b.Fatalf("claim: %s and result %q beside the error", c.Outcome, c.Result)
		}
	})
}
