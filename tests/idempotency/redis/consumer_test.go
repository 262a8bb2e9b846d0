package redis_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redistest"
)

// shop is a topic of a single partition, with a consumer in key order around
// Redis.
type shop struct {
	broker *kafkatest.Broker

	mu        sync.Mutex
	claimed   map[string]int // how often each message was handled under a lease
	unclaimed map[string]int // and without a lease
	unasked   map[string]int // how often the store gave no answer
	log       bytes.Buffer
}

func (s *shop) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(line)
}

// openShop runs the consumer until the test ends.
func openShop(t *testing.T, store *redis.Store, failOpen bool) *shop {
	t.Helper()
	s := &shop{broker: kafkatest.Start(t), claimed: map[string]int{}, unclaimed: map[string]int{}, unasked: map[string]int{}}
	s.broker.CreateTopic(t, "orders", 1, nil)
	processor := newProcessor(t, idempotency.Options{
		Store: store, FailOpen: failOpen,
		DeadLetter: func(_ context.Context, d idempotency.DeadLetter) error {
			t.Errorf("%s is given up: %v", d.Message.Key, d.Reason)
			return nil
		},
	})
	count := func(where map[string]int, r *kgo.Record) {
		s.mu.Lock()
		defer s.mu.Unlock()
		where[string(r.Value)]++
	}
	c, err := consumer.New(consumer.Config{
		Brokers: s.broker.Brokers, Group: key.Scope, Topics: []string{"orders"},
		Once: consumer.Once{Runner: processor}, KeyOrder: true, Concurrency: 8,
		Handler: func(ctx context.Context, r *kgo.Record) error {
			where := s.unclaimed
			if _, ok := idempotency.FenceFrom(ctx); ok {
				where = s.claimed
			}
			count(where, r)
			return nil
		},
		Observer: consumer.Observer{Processed: func(r *kgo.Record, result idempotency.Result, _ error, _ time.Duration) {
			if result.Disposition == idempotency.Unavailable {
				count(s.unasked, r)
			}
		}},
		CommitInterval: 10 * time.Millisecond, BackoffFirst: 5 * time.Millisecond, BackoffLongest: 20 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(s, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	return s
}

// deliver writes n messages to each of the keys.
func (s *shop) deliver(t *testing.T, name string, n int, keys ...string) {
	t.Helper()
	client := s.broker.Client(t)
	for i := range n {
		for _, k := range keys {
			id := fmt.Sprintf("%s-%s-%d", name, k, i)
			r := &kgo.Record{Topic: "orders", Key: []byte(k), Value: []byte(id), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}}}
			client.Produce(t.Context(), r, nil)
		}
	}
	if err := client.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// await waits until so many messages are counted.
func (s *shop) await(t *testing.T, what string, n int, of map[string]int) {
	t.Helper()
	await.Until(t, what, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(of) >= n
	})
}

// committed waits until all n records of the topic are.
func (s *shop) committed(t *testing.T, n int64) {
	t.Helper()
	admin := kadm.NewClient(s.broker.Client(t))
	await.Until(t, "the commit of all records", func() bool {
		offsets, err := admin.FetchOffsets(t.Context(), key.Scope)
		o, ok := offsets.Lookup("orders", 0)
		return err == nil && ok && o.At == n
	})
}

// once asserts that exactly n of the messages were handled, each once.
func (s *shop) once(t *testing.T, name string, n int, of map[string]int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	messages := 0
	for id, times := range of {
		if !strings.HasPrefix(id, name) {
			continue
		}
		messages++
		if times != 1 {
			t.Errorf("%s was handled %d times", id, times)
		}
	}
	if messages != n {
		t.Errorf("%d messages, want %d", messages, n)
	}
}

// A message waits, with the messages behind, if its key in Redis is something
// else's; the others do not.
func TestConsumerBesideAForeignKey(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	store := newStore(t, client, redis.Options{})
	foreign := prefix(t) + ":{" + key.Scope + "/first-odd-0}"
	if err := client.RPush(t.Context(), foreign, "not ours").Err(); err != nil {
		t.Fatal(err)
	}
	s := openShop(t, store, false)
	others := []string{"a", "b", "c", "d", "e", "f", "g"}
	s.deliver(t, "first", 10, append(others, "odd")...)
	s.await(t, "the other keys", 70, s.claimed)
	await.Until(t, "the foreign key was asked for again and again", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.unasked["first-odd-0"] >= 5
	})
	s.deliver(t, "second", 10, others...)
	s.await(t, "the other keys, again", 140, s.claimed)
	s.once(t, "", 140, s.claimed) // nothing of the odd message
	s.mu.Lock()
	log := s.log.String()
	s.mu.Unlock()
	if !strings.Contains(log, "gives no answer about this record") || !strings.Contains(log, "WRONGTYPE") || strings.Contains(log, "all partitions wait") {
		t.Errorf("the log is %s", log)
	}

	if err := client.Del(t.Context(), foreign).Err(); err != nil {
		t.Fatal(err)
	}
	s.committed(t, 150)
	s.once(t, "", 150, s.claimed)
}

// With FailOpen, a hanging Redis keeps no message from the handler.
func TestConsumerThatFailsOpenBesideASilentServer(t *testing.T) {
	server := redistest.Shared(t)
	p, err := proxy.Listen("127.0.0.1:0", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	client := server.Client(t, func(o *goredis.Options) { o.Addr = p.Addr() })
	s := openShop(t, newStore(t, client, redis.Options{}), true)
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	s.deliver(t, "before", 5, keys...)
	s.committed(t, 40)

	p.Set(proxy.Up, proxy.Fault{Swallow: true})
	s.deliver(t, "silent", 50, keys...)
	s.committed(t, 440)
	s.once(t, "silent", 400, s.unclaimed)
	s.once(t, "silent", 0, s.claimed)
}
