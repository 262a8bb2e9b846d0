package redis_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redistest"
)

// Values other than records are neither taken for records nor changed.
func TestForeignValuesAreLeftAlone(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	s := newStore(t, client, redis.Options{})
	name := prefix(t) + ":{shipping/order-1}"

	lease := claim(t, s, key, request())
	record := client.Get(t.Context(), name).Val()
	later := strings.Replace(record, ":1:", ":2:", 1)
	if later == record {
		t.Fatalf("the record, %q, does not begin with its version", record)
	}
	for what, set := range map[string][]any{
		"a string":                   {"SET", name, "processing"},
		"an empty string":            {"SET", name, ""},
		"a number":                   {"SET", name, "1"},
		"a record of a later layout": {"SET", name, later},
		"a hash":                     {"HSET", name, "state", "completed"},
		"a list":                     {"RPUSH", name, "x"},
	} {
		t.Run(what, func(t *testing.T) {
			do(t, client, "DEL", name)
			do(t, client, set...)
			before := dump(t, client, name)
			for verb, err := range map[string]error{
				"claim":    second(s.Claim(t.Context(), key, request())),
				"extend":   s.Extend(t.Context(), lease, time.Hour),
				"complete": s.Complete(t.Context(), lease, []byte("shipped"), time.Hour),
				"fail":     s.Fail(t.Context(), lease, storage.Failure{Retention: time.Hour}),
				"inspect":  second(s.Inspect(t.Context(), key)),
				"release":  second(s.Release(t.Context(), key)),
				"purge":    second(s.Purge(t.Context(), storage.Filter{Scope: key.Scope, ID: key.ID})),
				"purge of the scope": second(s.Purge(t.Context(), storage.Filter{
					Scope: key.Scope, States: []storage.State{storage.Processing, storage.Completed},
				})),
			} {
				if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") || storage.Answered(err) {
					t.Errorf("%s: %v, want WRONGTYPE", verb, err)
				}
			}
			if after := dump(t, client, name); after != before {
				t.Errorf("the value became %q, from %q", after, before)
			}
			if ttl := client.TTL(t.Context(), name).Val(); ttl != -1 {
				t.Errorf("the key now lives for %s", ttl)
			}
		})
	}
}

// dump returns the value in the server's form for a move elsewhere.
func dump(t *testing.T, client *goredis.Client, name string) string {
	t.Helper()
	value, err := client.Dump(t.Context(), name).Result()
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestAnyBytesComeBack(t *testing.T) {
	s := newStore(t, redistest.Shared(t).Client(t), redis.Options{})
	var all []byte
	for b := range 256 {
		all = append(all, byte(b))
	}
	req := request()
	req.Owner = strings.Repeat("ö", storage.MaxTokenBytes/2)
	req.Fingerprint = storage.Fingerprint("v1:\n" + strings.Repeat("x", storage.MaxTokenBytes-4))
	for name, text := range map[string][]byte{
		"NUL":           {0},
		"a line":        []byte("\r\n"),
		"a record":      []byte("idempotency:1:\x00completed 0"),
		"invalid UTF-8": {0xff, 0xfe, 0xc3},
		"each byte":     all,
		"long":          bytes.Repeat(all, 300), // longer than 16 bits can say
	} {
		t.Run(name, func(t *testing.T) {
			k := storage.Key{Scope: "shipping", ID: name}
			lease := claim(t, s, k, req)
			failure := storage.Failure{Reason: string(text), Retention: time.Hour}
			if err := s.Fail(t.Context(), lease, failure); err != nil {
				t.Fatal(err)
			}
			inspect := func() storage.Record {
				t.Helper()
				r, err := s.Inspect(t.Context(), k)
				if err != nil || r.Owner != req.Owner || r.Fingerprint != req.Fingerprint || r.Attempts == 0 {
					t.Errorf("record %+v, %v", r, err)
				}
				return r
			}
			if r := inspect(); r.State != storage.Retryable || r.Reason != failure.StoredReason() || r.Result != nil {
				t.Errorf("record %+v, want the reason %q", r, failure.StoredReason())
			}
			again, err := s.Claim(t.Context(), k, req)
			if err != nil || again.Outcome != storage.Claimed || again.Reason != failure.StoredReason() {
				t.Fatalf("claim %+v, %v, want the reason %q", again, err, failure.StoredReason())
			}
			complete(t, s, again.Lease, string(text))
			if r := inspect(); r.State != storage.Completed || !bytes.Equal(r.Result, text) || r.Reason != "" {
				t.Errorf("record %+v, want the result %q", r, text)
			}
			other := request()
			if c, err := s.Claim(t.Context(), k, other); err != nil || c.Outcome != storage.Duplicate || !bytes.Equal(c.Result, text) {
				t.Errorf("claim %+v, %v, want the result %q", c, err, text)
			}
		})
	}
}

// A record the server has not forgotten yet counts as none after the retention,
// but for the fence.
func TestPastTheRetentionTheFenceIsLeft(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	s := newStore(t, client, redis.Options{})
	req := request()
	req.Lease, req.Retention = 200*time.Millisecond, 200*time.Millisecond
	var lease storage.Lease
	await.Until(t, "a record stays that the server would forget", func() bool {
		lease = claim(t, s, key, req)
		return client.Persist(t.Context(), prefix(t)+":{shipping/order-1}").Val()
	})
	await.Until(t, "the record is past its retention", func() bool {
		r, err := s.Inspect(t.Context(), key)
		return err == nil && reflect.DeepEqual(r, storage.Record{Key: key, Fence: lease.Fence})
	})
	if err := s.Extend(t.Context(), lease, time.Hour); !errors.Is(err, storage.ErrLeaseLost) {
		t.Errorf("extend: %v, want %v", err, storage.ErrLeaseLost)
	}
	if err := s.Complete(t.Context(), lease, nil, time.Hour); !errors.Is(err, storage.ErrLeaseLost) {
		t.Errorf("complete: %v, want %v", err, storage.ErrLeaseLost)
	}
	c, err := s.Claim(t.Context(), key, req)
	if err != nil || c.Outcome != storage.Claimed || c.Attempts != 1 || c.Vanished != 0 || c.Lease.Fence <= lease.Fence {
		t.Errorf("claim %+v, %v, want a first one with a fence above %d", c, err, lease.Fence)
	}
}
