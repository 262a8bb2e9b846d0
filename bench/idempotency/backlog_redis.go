package main

import (
	"context"
	"fmt"
	"io"

	goredis "github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// The least work for the guarantee of a single owner at a time: two scripts per message,
// a claim by an owner for a while, and a completion by the same owner.
var (
	bareClaim = goredis.NewScript(`
		if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 'claimed' end
		return redis.call('GET', KEYS[1])`)
	bareComplete = goredis.NewScript(`
		if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
		redis.call('SET', KEYS[1], 'done', 'PX', ARGV[2])
		return 1`)
)

// measureRedisBacklog races a loop with the two scripts and the library, with an empty
// handler.
func measureRedisBacklog(ctx context.Context, b *backlog, rounds int, out io.Writer) error {
	var s stage
	defer s.close()
	addr, err := redisServer(ctx, &s, map[string]string{"auto-aof-rewrite-percentage": "0"}) // a rewrite would slow a single contender
	if err != nil {
		return err
	}
	client := goredis.NewClient(&goredis.Options{Addr: addr})
	s.onClose(func() { _ = client.Close() })
	store, err := redis.New(client, redis.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	b.title(out, "does nothing", rounds)
	return b.race(ctx, append([]contender{
		{"bare loop, two scripts a message", func(ctx context.Context, group string) error {
			return b.bare(ctx, group, func(ctx context.Context, scope, id string) error { return twoScripts(ctx, client, scope, id) })
		}},
	}, b.orders(store, func(context.Context, *kgo.Record) error { return nil }, 32, 128)...), rounds, out)
}

func twoScripts(ctx context.Context, client *goredis.Client, scope, id string) error {
	key, owner := []string{scope + "/" + id}, storage.NewOwner()
	answer, err := bareClaim.Run(ctx, client, key, owner, lease.Milliseconds()).Text()
	if err != nil || answer != "claimed" {
		return fmt.Errorf("claim: %s, %w", answer, err)
	}
	done, err := bareComplete.Run(ctx, client, key, owner, retention.Milliseconds()).Bool()
	if err != nil || !done {
		return fmt.Errorf("complete: %t, %w", done, err)
	}
	return nil
}
