package redistest_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestRestart(t *testing.T) {
	for name, test := range map[string]struct {
		opts []redistest.Option
		end  func(*redistest.Server, testing.TB)
		want string
	}{
		"without persistence forgets":             {end: (*redistest.Server).Stop},
		"with an append-only file remembers":      {opts: []redistest.Option{redistest.Setting("appendonly", "yes")}, end: (*redistest.Server).Stop, want: "v"},
		"with a file that is always synced, too":  {opts: []redistest.Option{redistest.Setting("appendonly", "yes"), redistest.Setting("appendfsync", "always")}, end: (*redistest.Server).Kill, want: "v"},
		"after a crash without persistence, also": {end: (*redistest.Server).Kill},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t, test.opts...)
			c := s.Client(t)
			if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
				t.Fatal(err)
			}
			test.end(s, t)
			s.Resume(t)
			got, err := c.Get(t.Context(), "k").Result()
			if err != nil && err != redis.Nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("k = %q, want %q", got, test.want)
			}
		})
	}
}

func TestPausedServerIsSilent(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled, o.MaxRetries = true, -1 })
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Ping(ctx).Err(); err == nil {
		t.Error("a paused server answered")
	}
	s.Continue(t)
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Errorf("ping after the pause: %v", err)
	}
}

func TestReplicaHasACopy(t *testing.T) {
	master := redistest.Start(t)
	if err := master.Client(t).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	got, err := redistest.Replica(t, master).Client(t).Get(t.Context(), "k").Result()
	if got != "v" || err != nil {
		t.Errorf("k = %q, %v, want v", got, err)
	}
}

func TestClusterTakesEverySlot(t *testing.T) {
	c := redistest.StartCluster(t).Client(t)
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		if err := c.Set(t.Context(), key, "v", 0).Err(); err != nil {
			t.Errorf("set %s: %v", key, err)
		}
	}
}

func TestSharedIsOneServer(t *testing.T) {
	addr, err := redistest.SharedAddr()
	if err != nil {
		t.Skip(err)
	}
	if got := redistest.Shared(t).Addr(); got != addr {
		t.Errorf("Shared is at %s and SharedAddr at %s", got, addr)
	}
}
