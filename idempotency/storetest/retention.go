package storetest

import (
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// forgotten checks that the key looks unused, except for the fence.
func (b *bench) forgotten(former storage.Lease) {
	b.Helper()
	b.inspect(storage.Absent)
	b.lost(map[string]storage.Lease{"the former lease": former})
	req := b.request()
	req.Fingerprint = "b1:another"
	b.above(b.granted(req, 1), former)
}

var retentions = []scenario{
	{"processing", func(b *bench) {
		req := b.requestFor(short)
		req.Retention = short
		lease := b.granted(req, 1)
		b.pass(short)
		b.forgotten(lease)
	}},
	{"completed", func(b *bench) {
		lease := b.granted(b.request(), 1)
		b.expect("complete", b.store.Complete(b.ctx, lease, []byte("result"), short), nil)
		b.pass(short)
		b.forgotten(lease)
	}},
	{"retryable", func(b *bench) {
		lease := b.granted(b.request(), 1)
		b.fail(lease, storage.Failure{RetryAfter: long, Retention: short}, nil)
		b.pass(short)
		b.forgotten(lease)
	}},
	{"failed", func(b *bench) {
		lease := b.granted(b.request(), 1)
		b.fail(lease, storage.Failure{Terminal: true, Retention: short}, nil)
		b.pass(short)
		b.forgotten(lease)
	}},
	{"completing prolongs", func(b *bench) {
		b.inTime(4*short, func() error {
			req := b.requestFor(short)
			req.Retention = 4 * short
			return b.store.Complete(b.ctx, b.granted(req, 1), []byte("result"), retention)
		})
		b.pass(4 * short)
		b.duplicate("result", 1)
	}},
	{"a claim prolongs", func(b *bench) {
		var second storage.Claim
		b.inTime(4*short, func() (err error) {
			b.fail(b.granted(b.request(), 1), storage.Failure{Retention: 4 * short}, nil)
			second, err = b.store.Claim(b.ctx, b.key, b.request())
			if err == nil && second.Attempts != 2 {
				err = fmt.Errorf("%s with %d attempts, want 2", second.Outcome, second.Attempts)
			}
			return err
		})
		b.pass(4 * short)
		b.complete(second.Lease, "result", nil)
		b.duplicate("result", 2)
	}},
}
