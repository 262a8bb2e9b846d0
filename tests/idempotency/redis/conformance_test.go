package redis_test

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storetest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redistest"
)

func subject(t *testing.T, client goredis.UniversalClient) storetest.Subject {
	const limit = 1 << 16
	s := newStore(t, client, redis.Options{MaxResultBytes: limit})
	return storetest.Subject{Store: s, Operator: s, MaxResultBytes: limit}
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject { return subject(t, redistest.Shared(t).Client(t)) })
}

func TestE2EHistoriesInCluster(t *testing.T) {
	storetest.Histories(t, subject(t, redistest.StartCluster(t).Client(t)), storetest.Options{})
}

func TestE2EHistoriesWhileScriptsAreFlushed(t *testing.T) {
	server := redistest.Start(t)
	flusher := server.Client(t)
	stop, stopped := make(chan struct{}), make(chan int)
	go func() { // joined at the end of the test
		n := 0
		for {
			select {
			case <-stop:
				stopped <- n
				return
			default:
				if flusher.ScriptFlush(t.Context()).Err() == nil {
					n++
				}
			}
		}
	}()
	storetest.Histories(t, subject(t, server.Client(t)), storetest.Options{})
	close(stop)
	if n := <-stopped; n == 0 {
		t.Error("no script was flushed")
	}
}
