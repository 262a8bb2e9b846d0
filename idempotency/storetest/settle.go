package storetest

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// strangers are leases other than the holder's.
func strangers(l storage.Lease) map[string]storage.Lease {
	owner, above, below, elsewhere := l, l, l, l
	owner.Owner += "x"
	above.Fence++
	below.Fence--
	elsewhere.Key.ID += "x"
	return map[string]storage.Lease{
		"another owner": owner, "a greater fence": above, "a smaller fence": below, "another key": elsewhere,
	}
}

// lost checks that no lease but the record's can settle the key.
func (b *bench) lost(leases map[string]storage.Lease) {
	b.Helper()
	for name, l := range leases {
		b.Logf("with %s", name)
		b.unchanged(func() {
			b.extend(l, long, storage.ErrLeaseLost)
			b.complete(l, "stolen", storage.ErrLeaseLost)
			b.fail(l, storage.Failure{}, storage.ErrLeaseLost)
			b.fail(l, storage.Failure{Terminal: true}, storage.ErrLeaseLost)
		})
	}
}

var extensions = []scenario{
	{"live lease", func(b *bench) {
		lease := b.granted(b.requestFor(short), 1)
		b.extend(lease, long, nil)
		b.extend(lease, long, nil)
		b.pass(short)
		b.waits(b.refused(b.request(), storage.InProgress, 1), long)
		r := b.inspect(storage.Processing)
		b.near("lease", r.LeaseUntil.Sub(r.UpdatedAt), long)
		if r.Attempts != 1 || r.Fence != lease.Fence {
			b.Fatalf("record %+v", r)
		}
	}},
	{"lease that ran out", func(b *bench) {
		lease := b.granted(b.requestFor(short), 1)
		b.pass(short)
		b.extend(lease, long, nil)
		b.refused(b.request(), storage.InProgress, 1)
	}},
	{"shorter than before", func(b *bench) {
		lease := b.granted(b.request(), 1)
		b.extend(lease, short, nil)
		b.pass(short)
		b.granted(b.request(), 2)
	}},
	{"beyond the retention", func(b *bench) {
		var lease storage.Lease
		b.inTime(4*short, func() error {
			req := b.requestFor(short)
			req.Retention = 4 * short
			lease = b.granted(req, 1)
			return b.store.Extend(b.ctx, lease, long)
		})
		b.pass(4 * short)
		b.extend(lease, long, nil)
		b.complete(lease, "late", nil)
		b.duplicate("late", 1)
	}},
	{"not the holder", func(b *bench) { b.lost(strangers(b.granted(b.request(), 1))) }},
	{"succeeded by another", func(b *bench) {
		first := b.granted(b.requestFor(short), 1)
		b.pass(short)
		b.granted(b.request(), 2)
		b.lost(map[string]storage.Lease{"the former lease": first})
	}},
	{"settled before", func(b *bench) {
		lease := b.granted(b.request(), 1)
		b.fail(lease, storage.Failure{}, nil)
		b.unchanged(func() { b.extend(lease, long, storage.ErrLeaseLost) })
		lease = b.granted(b.request(), 2)
		b.complete(lease, "", nil)
		b.unchanged(func() { b.extend(lease, long, storage.ErrLeaseLost) })
	}},
	{"absent key", func(b *bench) {
		b.extend(storage.Lease{Key: b.key, Owner: "nobody", Fence: 1}, long, storage.ErrLeaseLost)
		b.inspect(storage.Absent)
	}},
}

var completions = []scenario{
	{"with a result", func(b *bench) {
		var every [256]byte
		for i := range every {
			every[i] = byte(i)
		}
		lease := b.granted(b.request(), 1)
		b.complete(lease, string(every[:]), nil)
		r := b.inspect(storage.Completed)
		if !bytes.Equal(r.Result, every[:]) || r.Owner != lease.Owner || r.Fence != lease.Fence || r.Attempts != 1 {
			b.Fatalf("record %+v", r)
		}
		b.near("retention", r.ExpiresAt.Sub(r.UpdatedAt), retention)
		b.duplicate(string(every[:]), 1)
	}},
	{"without a result", func(b *bench) {
		b.expect("complete", b.store.Complete(b.ctx, b.granted(b.request(), 1), nil, retention), nil)
		b.duplicate("", 1)
	}},
	{"the bytes stay the caller's", func(b *bench) {
		result := []byte("result")
		b.expect("complete", b.store.Complete(b.ctx, b.granted(b.request(), 1), result, retention), nil)
		copy(result, "xxxxxx")
		copy(b.claim(b.request()).Result, "yyyyyy")
		copy(b.inspect(storage.Completed).Result, "zzzzzz")
		b.duplicate("result", 1)
	}},
	{"lease that ran out", func(b *bench) {
		lease := b.granted(b.requestFor(short), 1)
		b.pass(short)
		b.complete(lease, "late", nil)
		b.duplicate("late", 1)
	}},
	{"repeated", func(b *bench) {
		lease := b.granted(b.request(), 1)
		b.complete(lease, "result", nil)
		b.unchanged(func() { b.complete(lease, "result", nil) })
	}},
	{"not the holder", func(b *bench) {
		lease := b.granted(b.request(), 1)
		b.complete(lease, "result", nil)
		b.lost(strangers(lease))
		b.duplicate("result", 1)
	}},
	{"succeeded by another", func(b *bench) {
		first := b.granted(b.requestFor(short), 1)
		b.pass(short)
		second := b.granted(b.request(), 2)
		b.complete(second, "second", nil)
		b.lost(map[string]storage.Lease{"the former lease": first})
		b.duplicate("second", 2)
	}},
	{"failed before", func(b *bench) {
		lease := b.granted(b.request(), 1)
		b.fail(lease, storage.Failure{}, nil)
		b.unchanged(func() { b.complete(lease, "result", storage.ErrLeaseLost) })
		lease = b.granted(b.request(), 2)
		b.fail(lease, storage.Failure{Terminal: true}, nil)
		b.unchanged(func() { b.complete(lease, "result", storage.ErrLeaseLost) })
	}},
	{"absent key", func(b *bench) {
		b.complete(storage.Lease{Key: b.key, Owner: "nobody", Fence: 1}, "result", storage.ErrLeaseLost)
		b.inspect(storage.Absent)
	}},
	{"too large a result", func(b *bench) {
		limit := b.subject.MaxResultBytes
		if limit == 0 {
			b.Skip("the store has no limit")
		}
		lease := b.granted(b.request(), 1)
		b.unchanged(func() { b.complete(lease, strings.Repeat("x", limit+1), storage.ErrResultTooLarge) })
		b.complete(lease, strings.Repeat("x", limit), nil)
		b.duplicate(strings.Repeat("x", limit), 1)
	}},
}

var failures = []scenario{
	{"retryable", func(b *bench) {
		lease := b.granted(b.request(), 1)
		b.fail(lease, storage.Failure{RetryAfter: long, Reason: "no luck"}, nil)
		r := b.inspect(storage.Retryable)
		if r.Owner != lease.Owner || r.Fence != lease.Fence || r.Attempts != 1 || r.Reason != "no luck" {
			b.Fatalf("record %+v", r)
		}
		b.near("retry", r.RetryAt.Sub(r.UpdatedAt), long)
		b.near("retention", r.ExpiresAt.Sub(r.UpdatedAt), retention)
	}},
	{"terminal", func(b *bench) {
		lease := b.granted(b.request(), 1)
		b.fail(lease, storage.Failure{Terminal: true, Reason: "hopeless"}, nil)
		r := b.inspect(storage.Failed)
		if r.Owner != lease.Owner || r.Fence != lease.Fence || r.Attempts != 1 || r.Reason != "hopeless" {
			b.Fatalf("record %+v", r)
		}
	}},
	{"unrun", func(b *bench) {
		b.fail(b.granted(b.request(), 1), storage.Failure{}, nil)
		lease := b.granted(b.request(), 2)
		f := storage.Failure{Unrun: true}
		b.fail(lease, f, nil)
		b.unchanged(func() { b.fail(lease, f, nil) })
		b.counted(b.inspect(storage.Retryable), 1, 0, 0)
		b.granted(b.request(), 2)
	}},
	{"excused", func(b *bench) {
		b.fail(b.granted(b.request(), 1), storage.Failure{}, nil)
		lease := b.granted(b.request(), 2)
		f := storage.Failure{Excused: true}
		b.fail(lease, f, nil)
		b.unchanged(func() { b.fail(lease, f, nil) })
		b.counted(b.inspect(storage.Retryable), 2, 0, 1)
		c := b.claim(b.request())
		if c.Outcome != storage.Claimed || c.Attempts != 3 || c.Vanished != 0 || c.Excused != 1 {
			b.Fatalf("claim: %+v", c)
		}
		b.fail(c.Lease, f, nil)
		b.counted(b.inspect(storage.Retryable), 3, 0, 2)
	}},
	{"lease that ran out", func(b *bench) {
		lease := b.granted(b.requestFor(short), 1)
		b.pass(short)
		b.fail(lease, storage.Failure{RetryAfter: long}, nil)
		b.refused(b.request(), storage.NotDue, 1)
	}},
	{"repeated", func(b *bench) {
		lease := b.granted(b.request(), 1)
		f := storage.Failure{RetryAfter: long, Reason: "no luck"}
		b.fail(lease, f, nil)
		b.unchanged(func() { b.fail(lease, f, nil) })
	}},
	{"repeated, terminal", func(b *bench) {
		lease := b.granted(b.request(), 1)
		f := storage.Failure{Terminal: true, Reason: "hopeless"}
		b.fail(lease, f, nil)
		b.unchanged(func() { b.fail(lease, f, nil) })
	}},
	{"otherwise than before", func(b *bench) {
		lease := b.granted(b.request(), 1)
		b.fail(lease, storage.Failure{}, nil)
		b.unchanged(func() { b.fail(lease, storage.Failure{Terminal: true}, storage.ErrLeaseLost) })
		lease = b.granted(b.request(), 2)
		b.fail(lease, storage.Failure{Terminal: true}, nil)
		b.unchanged(func() { b.fail(lease, storage.Failure{}, storage.ErrLeaseLost) })
	}},
	{"completed before", func(b *bench) {
		lease := b.granted(b.request(), 1)
		b.complete(lease, "result", nil)
		b.unchanged(func() {
			b.fail(lease, storage.Failure{}, storage.ErrLeaseLost)
			b.fail(lease, storage.Failure{Terminal: true}, storage.ErrLeaseLost)
		})
	}},
	{"not the holder", func(b *bench) {
		lease := b.granted(b.request(), 1)
		b.fail(lease, storage.Failure{RetryAfter: long}, nil)
		b.lost(strangers(lease))
	}},
	{"absent key", func(b *bench) {
		b.fail(storage.Lease{Key: b.key, Owner: "nobody", Fence: 1}, storage.Failure{}, storage.ErrLeaseLost)
		b.inspect(storage.Absent)
	}},
	{"a long reason is cut between characters", func(b *bench) {
		reason := "x" + strings.Repeat("é", storage.MaxReasonBytes)
		b.fail(b.granted(b.request(), 1), storage.Failure{Terminal: true, Reason: reason}, nil)
		got := b.inspect(storage.Failed).Reason
		if want := reason[:storage.MaxReasonBytes-1]; got != want || !utf8.ValidString(got) {
			b.Fatalf("%d bytes, want %d", len(got), len(want))
		}
	}},
	{"a reason that is no text", func(b *bench) {
		b.fail(b.granted(b.request(), 1), storage.Failure{Terminal: true, Reason: "a\xffb\x00c"}, nil)
		b.reason(b.inspect(storage.Failed).Reason, "a\uFFFDb\uFFFDc")
	}},
}
