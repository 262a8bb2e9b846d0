package storetest

import "github.com/cdc-outbox/cdc-outbox/idempotency"

// forgotten checks that the key is as if it had never been, but for its fence.
func (b *bench) forgotten(former idempotency.Lease) {
	b.Helper()
	b.inspect(idempotency.Absent)
	b.lost(map[string]idempotency.Lease{"the former lease": former})
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
		b.fail(lease, idempotency.Failure{RetryAfter: long, Retention: short}, nil)
		b.pass(short)
		b.forgotten(lease)
	}},
	{"failed", func(b *bench) {
		lease := b.granted(b.request(), 1)
		b.fail(lease, idempotency.Failure{Terminal: true, Retention: short}, nil)
		b.pass(short)
		b.forgotten(lease)
	}},
	{"completing prolongs", func(b *bench) {
		req := b.requestFor(short)
		req.Retention = 4 * short
		lease := b.granted(req, 1)
		b.complete(lease, "result", nil)
		b.pass(4 * short)
		b.duplicate("result", 1)
	}},
	{"a claim prolongs", func(b *bench) {
		lease := b.granted(b.request(), 1)
		b.fail(lease, idempotency.Failure{Retention: 4 * short}, nil)
		lease = b.granted(b.request(), 2)
		b.pass(4 * short)
		b.complete(lease, "result", nil)
		b.duplicate("result", 2)
	}},
}
