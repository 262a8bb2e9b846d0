package redis

import (
	"context"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// The pause between two questions for a moving key's place in a cluster.
const redirects = 8

var redirectPause = backoff.Range{First: 10 * time.Millisecond, Longest: 200 * time.Millisecond}

// runDurably is run and, with WaitReplicas, returns the number of replicas with
// the script's writes.
func (s *Store) runDurably(ctx context.Context, script *goredis.Script, key storage.Key, args ...any) (reply any, replicas int64, err error) {
	if s.options.WaitReplicas == 0 {
		reply, err = s.runGathered(ctx, script, key, args...)
		return reply, 0, err
	}
	name := s.name(key)
	cluster, ok := s.client.(*goredis.ClusterClient)
	if !ok {
		return s.runAndWait(ctx, s.client, script, name, args)
	}
	// WAIT has no key: the cluster client would send WAIT anywhere. Hence the node
	// itself, and our own way of following a moving slot.
	pause := backoff.Series{Range: redirectPause}
	for range redirects {
		var node *goredis.Client
		if node, err = cluster.MasterForKey(ctx, name); err != nil {
			return nil, 0, err
		}
		reply, replicas, err = s.runAndWait(ctx, node, script, name, args)
		if !movedAway(err) {
			return reply, replicas, err
		}
		cluster.ReloadState(ctx)
		if err := pause.Pause(ctx); err != nil {
			return nil, 0, err
		}
	}
	return nil, 0, err
}

func movedAway(err error) bool {
	for _, prefix := range []string{"MOVED", "ASK", "TRYAGAIN", "READONLY"} {
		if goredis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// runAndWait sends the script and WAIT in a single pipeline: WAIT counts the
// replicas with everything written on the same connection.
func (s *Store) runAndWait(ctx context.Context, client goredis.UniversalClient, script *goredis.Script, name string, args []any) (any, int64, error) {
	send := func(run func(goredis.Pipeliner) *goredis.Cmd) (ran, waited *goredis.Cmd, err error) {
		pipe := client.Pipeline()
		ran = run(pipe)
		waited = pipe.Do(ctx, "WAIT", s.options.WaitReplicas, s.options.WaitTimeout.Milliseconds())
		_, err = pipe.Exec(ctx)
		return ran, waited, err
	}
	ran, waited, err := send(func(p goredis.Pipeliner) *goredis.Cmd {
		return p.EvalSha(ctx, script.Hash(), []string{name}, args...)
	})
	if goredis.HasErrorPrefix(ran.Err(), "NOSCRIPT") {
		ran, waited, err = send(func(p goredis.Pipeliner) *goredis.Cmd {
			return script.Eval(ctx, p, []string{name}, args...)
		})
	}
	if err != nil {
		return nil, 0, err // the first failed of the two
	}
	replicas, err := waited.Int64()
	if err != nil {
		return nil, 0, err
	}
	reply, err := replyFor(0, ran)
	return reply, replicas, err
}

// enough returns an error if fewer replicas than asked for have the write.
func (s *Store) enough(replicas int64) error {
	if replicas < int64(s.options.WaitReplicas) {
		return fmt.Errorf("%w: %d of %d after %s", errTooFewReplicas, replicas, s.options.WaitReplicas, s.options.WaitTimeout)
	}
	return nil
}
