package redis

import (
	"context"
	"fmt"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// scanCount is how many keys the server looks at per step of a Purge.
const scanCount = 1000

// Release implements storage.Operator.
func (s *Store) Release(ctx context.Context, key storage.Key) (storage.Record, error) {
	before, err := s.record(ctx, "release", releaseScript, key)
	if err == nil && before.State == storage.Completed {
		err = fmt.Errorf("release %s: %w", key, storage.ErrCompleted)
	}
	return before, err
}

// Purge implements storage.Operator. For a whole scope, Purge looks at all keys
// of the server, or of each master of a cluster, in steps not blocking others
// for long. Keys added meanwhile, or moved to another node, may be missed. With
// an error, the count is of the keys forgotten before.
func (s *Store) Purge(ctx context.Context, f storage.Filter) (int, error) {
	if err := f.Validate(); err != nil {
		return 0, err
	}
	args := []any{micros(f.UnchangedFor)}
	for _, state := range f.StatesOrDefault() {
		args = append(args, state.String())
	}
	var purged atomic.Int64
	if f.ID != "" {
		key := storage.Key{Scope: f.Scope, ID: f.ID}
		if err := s.purgeOne(ctx, s.name(key), args, &purged); err != nil {
			return 0, failed("purge", key, err)
		}
		return int(purged.Load()), nil
	}
	purge := func(ctx context.Context, node *goredis.Client) error {
		return s.purgeNode(ctx, node, f.Scope, args, &purged)
	}
	var err error
	switch client := s.client.(type) {
	case *goredis.ClusterClient:
		err = client.ForEachMaster(ctx, purge)
	case *goredis.Client:
		err = purge(ctx, client)
	default:
		err = fmt.Errorf("a client of type %T cannot be asked for its keys", s.client)
	}
	if err != nil {
		return int(purged.Load()), failed("purge", storage.Key{Scope: f.Scope, ID: "*"}, err)
	}
	return int(purged.Load()), nil
}

// purgeNode forgets matching keys on a single server.
func (s *Store) purgeNode(ctx context.Context, node *goredis.Client, scope string, args []any, purged *atomic.Int64) error {
	if err := purgeScript.Load(ctx, node).Err(); err != nil {
		return err
	}
	pattern := s.scopePattern(scope)
	for cursor := uint64(0); ; {
		names, next, err := node.Scan(ctx, cursor, pattern, scanCount).Result()
		if err != nil {
			return err
		}
		if err := s.purgeBatch(ctx, node, names, args, purged); err != nil {
			return err
		}
		if next == 0 {
			return nil
		}
		cursor = next
	}
}

// purgeBatch looks at the keys in a single round trip. Each is judged and
// forgotten by a separate script, as a cluster demands and fairness to others.
func (s *Store) purgeBatch(ctx context.Context, node *goredis.Client, names []string, args []any, purged *atomic.Int64) error {
	if len(names) == 0 {
		return nil
	}
	pipe := node.Pipeline()
	cmds := make([]*goredis.Cmd, len(names))
	for i, name := range names {
		cmds[i] = purgeScript.EvalSha(ctx, pipe, []string{name}, args...)
	}
	_, _ = pipe.Exec(ctx) // each command has a separate error
	for i, cmd := range cmds {
		n, err := count(replyFor(0, cmd))
		if err != nil { // a flushed script, a moved slot: a longer way
			if err := s.purgeOne(ctx, names[i], args, purged); err != nil {
				return err
			}
			continue
		}
		purged.Add(n)
	}
	return nil
}

func (s *Store) purgeOne(ctx context.Context, name string, args []any, purged *atomic.Int64) error {
	n, err := count(s.runOn(ctx, purgeScript, name, args))
	purged.Add(n)
	return err
}

// count reads the reply of purge.lua.
func count(reply any, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	n, ok := reply.(int64)
	if !ok {
		return 0, unexpected(reply)
	}
	return n, nil
}
