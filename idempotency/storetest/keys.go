package storetest

import (
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// odd are ids a store must tell apart.
var odd = []string{
	"0", "00", "1e3", "1000", " ", "  ", "a", "A", "a ", " a", "ä", "a\u0308", "ß", "ss", "日本語", "🦆", "\u200b",
	"a/b", "a:b", "a|b", "a#b", "{a}", "{a}b", "}{", "[a]", "*", "?", "a*", "%", "%s", "_", "\\", "\\0", "'", "\"", "''", "`",
	"; drop table keys; --", "null", "NULL", "true", "nil", "NaN", "\n", "\r\n", "\t", "\x01", "\x7f", "\u0085", "\ufeff", "a\nb",
	"$1", "$a", ":a", "-", ".", "..", "/", "//", "018f3c1e-7b5a-7c3e-9d2f-1a2b3c4d5e6f", "018F3C1E-7B5A-7C3E-9D2F-1A2B3C4D5E6F",
	strings.Repeat("x", storage.MaxIDBytes), strings.Repeat("x", storage.MaxIDBytes-1), strings.Repeat("é", storage.MaxIDBytes/2),
}

var keys = []scenario{
	{"odd ids are told apart", func(b *bench) {
		leases := make(map[string]storage.Lease)
		for _, id := range odd {
			b.key.ID = id
			leases[id] = b.granted(b.request(), 1)
		}
		for id, lease := range leases {
			b.key.ID = id
			b.complete(lease, "result of "+id, nil)
		}
		for _, id := range odd {
			b.key.ID = id
			b.duplicate("result of "+id, 1)
			b.inspect(storage.Completed)
		}
	}},
	{"scopes are told apart", func(b *bench) {
		base := b.key.Scope
		for _, s := range []string{base, base + ".", base + "-", base + "_", base + ".a", strings.ToLower(base), base + strings.Repeat("s", 100-len(base))} {
			b.key.Scope = s
			b.complete(b.granted(b.request(), 1), s, nil)
		}
		b.key.Scope = base
		b.duplicate(base, 1)
	}},
	{"bad keys", func(b *bench) {
		for _, k := range []storage.Key{
			{}, {ID: "id"}, {Scope: b.key.Scope}, {Scope: "a/b", ID: "id"}, {Scope: "ä", ID: "id"}, {Scope: "a b", ID: "id"},
			{Scope: strings.Repeat("s", 101), ID: "id"}, {Scope: b.key.Scope, ID: "a\x00"}, {Scope: b.key.Scope, ID: "\xff"},
			{Scope: b.key.Scope, ID: strings.Repeat("x", storage.MaxIDBytes+1)},
		} {
			b.badKey(k)
		}
	}},
	{"bad requests", func(b *bench) {
		for name, alter := range map[string]func(r *storage.ClaimRequest){
			"no owner":         func(r *storage.ClaimRequest) { r.Owner = "" },
			"no lease":         func(r *storage.ClaimRequest) { r.Lease = 0 },
			"negative lease":   func(r *storage.ClaimRequest) { r.Lease = -time.Second },
			"short retention":  func(r *storage.ClaimRequest) { r.Retention = r.Lease - 1 },
			"long owner":       func(r *storage.ClaimRequest) { r.Owner = strings.Repeat("x", storage.MaxTokenBytes+1) },
			"owner no text":    func(r *storage.ClaimRequest) { r.Owner = "\xff" },
			"long fingerprint": func(r *storage.ClaimRequest) { r.Fingerprint = storage.Fingerprint(strings.Repeat("x", 200)) },
		} {
			r := b.request()
			alter(&r)
			_, err := b.store.Claim(b.ctx, b.key, r)
			b.expect("claim with "+name, err, storage.ErrBadRequest)
		}
		b.inspect(storage.Absent)
		lease := b.granted(b.request(), 1)
		b.unchanged(func() {
			b.extend(lease, 0, storage.ErrBadRequest)
			b.expect("complete", b.store.Complete(b.ctx, lease, nil, 0), storage.ErrBadRequest)
			b.fail(lease, storage.Failure{Retention: -1}, storage.ErrBadRequest)
			b.fail(lease, storage.Failure{RetryAfter: -1}, storage.ErrBadRequest)
			b.fail(lease, storage.Failure{Terminal: true, Excused: true}, storage.ErrBadRequest)
			b.fail(lease, storage.Failure{Terminal: true, Unrun: true}, storage.ErrBadRequest)
			b.fail(lease, storage.Failure{Excused: true, Unrun: true}, storage.ErrBadRequest)
			b.extend(storage.Lease{Key: b.key}, long, storage.ErrBadRequest)
		})
	}},
	{"the longest tokens", func(b *bench) {
		r := b.request()
		r.Owner = strings.Repeat("o", storage.MaxTokenBytes)
		r.Fingerprint = storage.Fingerprint("b1:" + strings.Repeat("f", storage.MaxTokenBytes-3))
		b.complete(b.granted(r, 1), "", nil)
		if got := b.inspect(storage.Completed); got.Owner != r.Owner || got.Fingerprint != r.Fingerprint {
			b.Fatalf("record %+v", got)
		}
	}},
}

func (b *bench) badKey(k storage.Key) {
	b.Helper()
	_, err := b.store.Claim(b.ctx, k, b.request())
	b.expect("claim", err, storage.ErrBadKey)
	_, err = b.store.Inspect(b.ctx, k)
	b.expect("inspect", err, storage.ErrBadKey)
	lease := storage.Lease{Key: k, Owner: "owner", Fence: 1}
	b.extend(lease, long, storage.ErrBadKey)
	b.complete(lease, "", storage.ErrBadKey)
	b.fail(lease, storage.Failure{}, storage.ErrBadKey)
}
