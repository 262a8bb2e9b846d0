package redis

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/hook"
)

// evictionInterval is the time between two looks at the servers.
const evictionInterval = time.Minute

// Maintain implements storage.Maintainer: it reports a server's evictions since
// the last look, and an unreachable server.
func (s *Store) Maintain(ctx context.Context, report func(error)) {
	interval, seen := hook.Interval(ctx, evictionInterval), map[string]int64{}
	for {
		if err := s.lookForEvictions(ctx, seen, report); err != nil && ctx.Err() == nil {
			report(fmt.Errorf("look for evicted keys: %w", explain(err)))
			if goredis.HasErrorPrefix(err, "NOPERM") { // once is enough
				return
			}
		}
		if backoff.Sleep(ctx, interval) != nil {
			return
		}
	}
}

// lookForEvictions compares each server's count of evictions with the last.
func (s *Store) lookForEvictions(ctx context.Context, seen map[string]int64, report func(error)) error {
	var mu sync.Mutex // the cluster client calls look concurrently
	look := func(ctx context.Context, node *goredis.Client) error {
		info, err := readInfo(ctx, node, "stats")
		if err != nil {
			return err
		}
		evicted, err := strconv.ParseInt(info["evicted_keys"], 10, 64)
		if err != nil {
			return fmt.Errorf("read evicted_keys: %w", err)
		}
		mu.Lock()
		defer mu.Unlock()
		server := node.Options().Addr
		before, known := seen[server]
		seen[server] = evicted
		if known && evicted > before {
			report(fmt.Errorf("%s has evicted %d keys in the last minute: their messages are handled again if they come again "+
				"(give it more memory, and set maxmemory-policy to noeviction)", server, evicted-before))
		}
		return nil
	}
	switch client := s.client.(type) {
	case *goredis.ClusterClient:
		return client.ForEachMaster(ctx, look)
	case *goredis.Client:
		return look(ctx, client)
	default:
		return nil // Check says so
	}
}
