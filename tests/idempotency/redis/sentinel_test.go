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

// Workers go on through a failover by Sentinel. While all replicas have each granted or
// completed key, so has the new master: nothing is handled twice, and nothing is left
// out. With fewer, Sentinel may promote a replica without the key.
func TestE2ESentinelFailsOver(t *testing.T) {
	const workers, enough = 8, 300
	first := redistest.StartBeside(t)
	atOnce := redistest.Setting("repl-diskless-sync-delay", "0")
	servers := []*redistest.Server{first.Server, redistest.Replica(t, first, atOnce), redistest.Replica(t, first, atOnce)}
	replicas := len(servers) - 1
	sentinel := redistest.Sentinel(t, first, replicas)
	master := func() *redistest.Server { return sentinel.Master(t, servers) }
	client := goredis.NewFailoverClient(&goredis.FailoverOptions{
		MasterName: redistest.SentinelMaster, SentinelAddrs: []string{sentinel.Addr()}, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	s := newStore(t, client, redis.Options{WaitReplicas: replicas, WaitTimeout: time.Second})
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
	old := master() // not the first, if Sentinel took a busy master for dead
	old.Kill(t)
	await.Until(t, "the failover", func() bool { return master() != old })
	promoted := master()
	promoted.Await(t, "replication", "connected_slaves:1") // not the old master's any more, which forgets everything
	old.Resume(t)
	old.Follow(t, promoted)
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
