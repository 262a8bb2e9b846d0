package redis_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redistest"
)

// Workers go on through a failover by Sentinel. With WaitReplicas the new master
// knows each granted or completed key, so nothing is handled twice, and nothing
// is left out.
func TestE2ESentinelFailsOver(t *testing.T) {
	const workers, enough = 8, 300
	master := redistest.StartBeside(t)
	replicas := []*redistest.Server{redistest.Replica(t, master), redistest.Replica(t, master)}
	sentinel := redistest.Sentinel(t, master, len(replicas))
	client := goredis.NewFailoverClient(&goredis.FailoverOptions{
		MasterName: redistest.SentinelMaster, SentinelAddrs: []string{sentinel.Addr()}, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	s := newStore(t, client, redis.Options{WaitReplicas: 1, WaitTimeout: time.Second})
	warns(t, s, "nothing is kept on disk")
	processor := newProcessor(t, idempotency.Options{
		Store: s, Lease: time.Minute, MaxAttempts: -1, FirstRetry: time.Millisecond, LastRetry: 10 * time.Millisecond,
		Observer: idempotency.Observer{LeaseLost: func(l idempotency.Loss) { t.Errorf("%s: its lease is lost", l.Message.Key) }},
	})

	var (
		next, handled atomic.Int64
		runs          sync.Map // by id: how often the handler ran
		stop          atomic.Bool
	)
	handle := func(id string) idempotency.Handler {
		return func(context.Context) ([]byte, error) {
			n, _ := runs.LoadOrStore(id, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
			return nil, nil
		}
	}
	deliver := func(id string) idempotency.Disposition {
		message := idempotency.Message{Key: storage.Key{Scope: "shipping", ID: id}}
		result, err := processor.RunUntilDone(t.Context(), message, handle(id))
		if err != nil {
			t.Error(err)
		}
		return result.Disposition
	}
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for !stop.Load() {
				deliver(fmt.Sprint(next.Add(1)))
				handled.Add(1)
			}
		})
	}
	await.Until(t, "work", func() bool { return handled.Load() > enough })
	master.Kill(t)
	before := handled.Load()
	await.Until(t, "work after the failover", func() bool { return handled.Load() > before+enough })
	stop.Store(true)
	working.Wait()

	for n := range next.Load() {
		id := fmt.Sprint(n + 1)
		if d := deliver(id); d != idempotency.Skipped {
			t.Errorf("%s, again: %s", id, d)
		}
		if n, ok := runs.Load(id); !ok || n.(*atomic.Int64).Load() != 1 {
			t.Errorf("%s was not handled once", id)
		}
	}
}
