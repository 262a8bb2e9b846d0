package consumer

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// works has two workers handle a record for each partition's values, which are the
// ids, too, and returns when each handler began. The completion of the key hangs
// does. There are no dead letters.
func works(t *testing.T, hangs string, change func(*Config), takes map[string]time.Duration, partitions ...[]string) map[string]time.Duration {
	t.Helper()
	begun, began := time.Now(), map[string]time.Duration{}
	var mu sync.Mutex
	runner, err := idempotency.New(idempotency.Options{Store: &table{hangs: hangs, records: map[storage.Key]storage.Record{}}, DeadLetter: func(_ context.Context, d idempotency.DeadLetter) error {
		t.Errorf("dead letter of %s: %v", d.Message.Key.ID, d.Reason)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer runner.Close()
	cfg := &Config{Brokers: []string{"none"}, Group: "g", Topics: []string{"t"}, Once: Once{Runner: runner}, Handler: func(_ context.Context, r *kgo.Record) error {
		mu.Lock()
		began[string(r.Value)] = time.Since(begun)
		mu.Unlock()
		<-time.After(takes[string(r.Value)])
		return nil
	}}
	change(cfg)
	if err := cfg.complete(); err != nil {
		t.Fatal(err)
	}
	process, err := cfg.process()
	if err != nil {
		t.Fatal(err)
	}
	s := &session{cfg: cfg, process: process, scheduler: newScheduler(t.Context(), cfg)}
	for n, values := range partitions {
		var records []*kgo.Record
		for offset, value := range values {
			records = append(records, &kgo.Record{
				Topic: "t", Partition: int32(n), Offset: int64(offset), Value: []byte(value),
				Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(value)}},
			})
		}
		s.scheduler.add(partitionID{"t", int32(n)}, records)
	}
	var workers sync.WaitGroup
	workers.Go(s.work)
	workers.Go(s.work)
	<-time.After(time.Minute)
	s.scheduler.close()
	workers.Wait()
	return began
}

// A message claimed before a middleware has changed it would be known with
// another payload.
func TestWhatMiddlewaresMayChangeIsNotClaimedAhead(t *testing.T) {
	for name, unpack := range map[string]func(r *kgo.Record) *kgo.Record{
		"a copy": func(r *kgo.Record) *kgo.Record { c := *r; return &c },
		"itself": func(r *kgo.Record) *kgo.Record { return r },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := works(t, "", func(c *Config) {
					c.Middleware = append(c.Middleware, func(next Process) Process {
						return func(ctx context.Context, r *kgo.Record) (idempotency.Result, error) {
							if text, packed := strings.CutPrefix(string(r.Value), "packed "); packed {
								r = unpack(r)
								r.Value = []byte(text)
							}
							return next(ctx, r)
						}
					})
				}, nil, []string{"plain", "packed second"})
				if len(began) != 2 {
					t.Errorf("handled: %v", began)
				}
			})
		})
	}
}

// table is a store in memory, of the machine alone: package memory takes modules
// unneeded here. table does not answer the completion of the key hangs.
type table struct {
	hangs   string
	mu      sync.Mutex
	records map[storage.Key]storage.Record
}

func (s *table) change(key storage.Key, transition func(storage.Record) (storage.Record, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[key]
	if !ok {
		r = storage.Record{Key: key}
	}
	r, err := transition(r)
	if err == nil {
		s.records[key] = r
	}
	return err
}

func (s *table) Claim(_ context.Context, key storage.Key, req storage.ClaimRequest) (claim storage.Claim, err error) {
	err = s.change(key, func(r storage.Record) (next storage.Record, err error) {
		if next, claim, err = r.Claim(time.Now(), req); claim.Outcome != storage.Claimed {
			next = r
		}
		return next, err
	})
	return claim, err
}

func (s *table) Extend(_ context.Context, l storage.Lease, d time.Duration) error {
	return s.change(l.Key, func(r storage.Record) (storage.Record, error) { return r.Extend(time.Now(), l, d) })
}

func (s *table) Complete(ctx context.Context, l storage.Lease, result []byte, retention time.Duration) error {
	if l.Key.ID == s.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.change(l.Key, func(r storage.Record) (storage.Record, error) { return r.Complete(time.Now(), l, result, retention) })
}

func (s *table) Fail(_ context.Context, l storage.Lease, f storage.Failure) error {
	return s.change(l.Key, func(r storage.Record) (storage.Record, error) { return r.Fail(time.Now(), l, f) })
}

func (s *table) Inspect(_ context.Context, key storage.Key) (r storage.Record, err error) {
	return r, s.change(key, func(found storage.Record) (storage.Record, error) { r = found; return found, nil })
}

// A key without an answer to the completion holds up its own order only.
func TestACompletionThatHangsHoldsNobodyElseUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := works(t, "a", func(*Config) {},
			map[string]time.Duration{"a": 100 * time.Millisecond, "b": 200 * time.Millisecond}, []string{"a"}, []string{"b"}, []string{"c"})
		if began["c"] != 200*time.Millisecond { // of the bubble's clock: when the other worker is free
			t.Errorf("handlers began at %v", began)
		}
	})
}
