package storetest

import (
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

func (b *bench) release(want error) storage.Record {
	b.Helper()
	r, err := b.subject.Operator.Release(b.ctx, b.key)
	b.expect("release", err, want)
	return r
}

func (b *bench) purge(f storage.Filter, want int) {
	b.Helper()
	n, err := b.subject.Operator.Purge(b.ctx, f)
	b.expect("purge", err, nil)
	if n != want {
		b.Fatalf("purge: %d records, want %d", n, want)
	}
}

// population brings a key into each state and returns the ids.
func (b *bench) population() (ids []string) {
	for i, s := range states {
		b.key.ID = fmt.Sprintf("%d %s", i, s.name)
		s.enter(b, b.request())
		ids = append(ids, b.key.ID)
	}
	return ids
}

var operations = func() []scenario {
	list := []scenario{
		{"release a completed key", func(b *bench) {
			b.complete(b.granted(b.request(), 1), "result", nil)
			b.unchanged(func() { b.release(storage.ErrCompleted) })
			b.duplicate("result", 1)
		}},
		{"release an absent key", func(b *bench) {
			if r := b.release(nil); r.State != storage.Absent || r.Key != b.key {
				b.Fatalf("record %+v", r)
			}
			b.inspect(storage.Absent)
		}},
		{"a released lease is lost", func(b *bench) {
			lease := b.granted(b.request(), 1)
			b.release(nil)
			b.lost(map[string]storage.Lease{"the former lease": lease})
			b.above(b.granted(b.request(), 1), lease)
		}},
		{"a failure cannot be repeated after a release", func(b *bench) {
			lease := b.granted(b.request(), 1)
			b.fail(lease, storage.Failure{RetryAfter: long}, nil)
			b.release(nil)
			b.lost(map[string]storage.Lease{"the former lease": lease})
		}},
		{"releasing forgets what was counted", func(b *bench) {
			b.fail(b.granted(b.requestFor(short), 1), storage.Failure{Excused: true}, nil)
			b.granted(b.requestFor(short), 2)
			b.pass(short)
			b.granted(b.request(), 3)
			b.counted(b.release(nil), 3, 1, 1)
			b.counted(b.inspect(storage.Retryable), 0, 0, 0)
			if c := b.claim(b.request()); c.Attempts != 1 || c.Vanished != 0 || c.Excused != 0 {
				b.Fatalf("claim: %+v", c)
			}
		}},
		{"releasing keeps the payload", func(b *bench) {
			b.granted(b.request(), 1)
			b.release(nil)
			req := b.request()
			req.Fingerprint = "b1:another"
			b.mismatch(req)
		}},
		{"purge a scope", func(b *bench) {
			ids := b.population()
			other := *b
			other.key = storage.Key{Scope: b.key.Scope + ".other", ID: "key"}
			other.complete(other.granted(b.request(), 1), "kept", nil)
			b.purge(storage.Filter{Scope: b.key.Scope}, 2)
			b.purge(storage.Filter{Scope: b.key.Scope}, 0)
			for i, id := range ids {
				b.key.ID = id
				want := states[i].state
				if want == storage.Completed || want == storage.Failed {
					want = storage.Absent
				}
				b.inspect(want)
			}
			other.duplicate("kept", 1)
		}},
		{"purge by state", func(b *bench) {
			b.population()
			b.purge(storage.Filter{Scope: b.key.Scope, States: []storage.State{storage.Processing}}, 2)
			b.purge(storage.Filter{Scope: b.key.Scope, States: []storage.State{storage.Retryable, storage.Failed}}, 3)
			b.purge(storage.Filter{Scope: b.key.Scope}, 1)
		}},
		{"purge one key", func(b *bench) {
			b.population()
			b.key.ID = "one"
			b.complete(b.granted(b.request(), 1), "", nil)
			b.purge(storage.Filter{Scope: b.key.Scope, ID: "one"}, 1)
			b.inspect(storage.Absent)
			b.purge(storage.Filter{Scope: b.key.Scope}, 2)
		}},
		{"purge what did not change for long", func(b *bench) {
			old := b.key
			b.complete(b.granted(b.request(), 1), "", nil)
			b.pass(2 * short)
			b.key.ID = "new"
			b.complete(b.granted(b.request(), 1), "", nil)
			b.purge(storage.Filter{Scope: b.key.Scope, UnchangedFor: long}, 0)
			b.purge(storage.Filter{Scope: b.key.Scope, ID: old.ID, UnchangedFor: 2 * short}, 1)
			b.inspect(storage.Completed)
			b.key = old
			b.inspect(storage.Absent)
		}},
		{"an extension is a change", func(b *bench) {
			lease := b.granted(b.request(), 1)
			before := b.inspect(storage.Processing).UpdatedAt
			b.pass(short)
			b.extend(lease, long, nil)
			if after := b.inspect(storage.Processing).UpdatedAt; !after.After(before) {
				b.Fatalf("changed at %s, extended later, still %s", before, after)
			}
		}},
		{"purge many", func(b *bench) {
			const many = 300
			for i := range many {
				b.key.ID = fmt.Sprintf("many-%d", i)
				b.complete(b.granted(b.request(), 1), "", nil)
			}
			b.purge(storage.Filter{Scope: b.key.Scope}, many)
			b.inspect(storage.Absent)
		}},
		{"a purged key is new, but for its fence", func(b *bench) {
			for range 5 {
				lease := b.granted(b.request(), 1)
				b.complete(lease, "result", nil)
				b.purge(storage.Filter{Scope: b.key.Scope, ID: b.key.ID}, 1)
				b.lost(map[string]storage.Lease{"the former lease": lease})
				next := b.granted(b.request(), 1)
				b.above(next, lease)
				b.fail(next, storage.Failure{Terminal: true}, nil)
				b.purge(storage.Filter{Scope: b.key.Scope, ID: b.key.ID}, 1)
			}
		}},
		{"bad requests", func(b *bench) {
			_, err := b.subject.Operator.Purge(b.ctx, storage.Filter{})
			b.expect("purge", err, storage.ErrBadKey)
			_, err = b.subject.Operator.Purge(b.ctx, storage.Filter{Scope: b.key.Scope, UnchangedFor: -1})
			b.expect("purge", err, storage.ErrBadRequest)
			_, err = b.subject.Operator.Release(b.ctx, storage.Key{})
			b.expect("release", err, storage.ErrBadKey)
		}},
	}
	for _, s := range states {
		if s.state == storage.Completed {
			continue
		}
		list = append(list, scenario{"release, " + s.name, func(b *bench) {
			s.enter(b, b.request())
			before := b.inspect(s.state)
			if was := b.release(nil); !same(was, before) {
				b.Fatalf("was %+v, want %+v", was, before)
			}
			r := b.inspect(storage.Retryable)
			if r.Attempts != 0 || r.Owner != "" || r.Fence != before.Fence || r.Fingerprint != before.Fingerprint {
				b.Fatalf("record %+v", r)
			}
			b.release(nil)
			b.granted(b.request(), 1)
		}})
	}
	return list
}()
