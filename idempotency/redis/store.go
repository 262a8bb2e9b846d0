package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/ahead"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// Store is a storage.Store and Operator in a Redis 7 server or later, a master
// watched by Sentinel, a Redis Cluster, or Valkey. Make a Store with New.
type Store struct {
	client   goredis.UniversalClient
	options  Options
	gatherer *gatherer
}

var (
	_ storage.Store    = (*Store)(nil)
	_ storage.Operator = (*Store)(nil)
	_ ahead.Store      = (*Store)(nil)
)

// New returns a store on the client. The caller closes the store and, later, the
// client. New does not ask the server; Check does.
//
// Give the client ContextTimeoutEnabled, or the calls outlive their contexts by
// up to ReadTimeout.
func New(client goredis.UniversalClient, o Options) (*Store, error) {
	o, err := o.withDefaults(client)
	if err != nil {
		return nil, fmt.Errorf("make idempotency store: %w", err)
	}
	_, cluster := client.(*goredis.ClusterClient)
	return &Store{client: client, options: o, gatherer: newGatherer(cluster)}, nil
}

// Close waits for the shared round trips, also of callers no longer waiting:
// until the deadline of the last call of each or, without deadlines, the
// client's timeouts. The client is left open. A call after Close makes a round
// trip by itself: a settlement coming late is not lost. Close may be called
// again, and concurrently.
func (s *Store) Close() { s.gatherer.close() }

// Claim implements storage.Store.
func (s *Store) Claim(ctx context.Context, key storage.Key, req storage.ClaimRequest) (storage.Claim, error) {
	if err := checkClaim(key, req); err != nil {
		return storage.Claim{}, err
	}
	reply, replicas, err := s.runDurably(ctx, claimScript, key, claimArgs(req)...)
	if err != nil {
		return storage.Claim{}, failed("claim", key, err)
	}
	claim, err := readClaim(reply, key, req.Owner)
	if err == nil && claim.Outcome == storage.Claimed {
		err = s.enough(replicas)
	}
	if err != nil {
		return storage.Claim{}, failed("claim", key, err)
	}
	return claim, nil
}

func checkClaim(key storage.Key, req storage.ClaimRequest) error {
	if err := key.Validate(); err != nil {
		return err
	}
	return req.Validate()
}

func claimArgs(req storage.ClaimRequest) []any {
	return []any{req.Owner, string(req.Fingerprint), micros(req.Lease), millis(req.Retention)}
}

// Extend implements storage.Store.
func (s *Store) Extend(ctx context.Context, lease storage.Lease, d time.Duration) error {
	if err := lease.Validate(); err != nil {
		return err
	}
	if err := storage.CheckLease(d); err != nil {
		return err
	}
	reply, err := s.run(ctx, extendScript, lease.Key, lease.Owner, lease.Fence, micros(d))
	return settled("extend", lease.Key, reply, err)
}

// Complete implements storage.Store. An empty result is kept as none.
func (s *Store) Complete(ctx context.Context, lease storage.Lease, result []byte, retention time.Duration) error {
	if err := s.checkCompletion(lease, result, retention); err != nil {
		return err
	}
	reply, replicas, err := s.runDurably(ctx, completeScript, lease.Key, completionArgs(lease, result, retention)...)
	if err := settled("complete", lease.Key, reply, err); err != nil {
		return err
	}
	if err := s.enough(replicas); err != nil {
		return failed("complete", lease.Key, err)
	}
	return nil
}

func (s *Store) checkCompletion(lease storage.Lease, result []byte, retention time.Duration) error {
	if err := lease.Validate(); err != nil {
		return err
	}
	return storage.CheckCompletion(lease, result, s.options.MaxResultBytes, retention)
}

func completionArgs(lease storage.Lease, result []byte, retention time.Duration) []any {
	return []any{lease.Owner, lease.Fence, millis(retention), string(result)}
}

// CompleteAndClaim is Complete and, in the same round trip, the Claim of
// another key, each with a separate error: package consumer claims the next
// message so. Neither is made, and err is ahead.ErrApart, unless a single server
// has both keys, the call can share a round trip, and self is the store itself,
// not a store around it. A refused claim is not asked for again: the message's
// Run asks.
func (s *Store) CompleteAndClaim(ctx context.Context, self storage.Store, lease storage.Lease, result []byte, retention time.Duration, key storage.Key, req storage.ClaimRequest) (claim storage.Claim, claimErr, err error) {
	if self != storage.Store(s) || s.options.WaitReplicas > 0 || s.checkCompletion(lease, result, retention) != nil || checkClaim(key, req) != nil {
		return claim, nil, ahead.ErrApart
	}
	done := s.call(ctx, completeScript, lease.Key, completionArgs(lease, result, retention)...)
	next := s.call(ctx, claimScript, key, claimArgs(req)...)
	server := s.server(ctx, done)
	if server == nil || s.server(ctx, next) != server {
		return claim, nil, ahead.ErrApart
	}
	err = s.gatherer.send(server, done, next)
	switch {
	case errors.Is(err, ahead.ErrApart):
		return claim, nil, err
	case err != nil:
		return claim, failed("claim", key, err), failed("complete", lease.Key, err)
	}
	reply, err := done.answer()
	err = settled("complete", lease.Key, reply, err)
	if reply, claimErr = next.reply(); claimErr == nil {
		claim, claimErr = readClaim(reply, key, req.Owner)
	}
	if claimErr != nil {
		return storage.Claim{}, failed("claim", key, claimErr), err
	}
	return claim, nil, err
}

// Fail implements storage.Store.
func (s *Store) Fail(ctx context.Context, lease storage.Lease, f storage.Failure) error {
	if err := lease.Validate(); err != nil {
		return err
	}
	if err := f.Validate(); err != nil {
		return err
	}
	state, unrun, excused := storage.Retryable, 0, 0
	if f.Terminal {
		state = storage.Failed
	}
	switch {
	case f.Unrun:
		unrun = 1
	case f.Excused:
		excused = 1
	}
	reply, err := s.run(ctx, failScript, lease.Key, lease.Owner, lease.Fence, millis(f.Retention),
		state.String(), unrun, excused, micros(f.RetryAfter), f.StoredReason())
	return settled("fail", lease.Key, reply, err)
}

// Inspect implements storage.Store, also by a script: scripts are never sent to a
// replica.
func (s *Store) Inspect(ctx context.Context, key storage.Key) (storage.Record, error) {
	return s.record(ctx, "inspect", inspectScript, key)
}

// record runs a script returning the key's record.
func (s *Store) record(ctx context.Context, verb string, script *goredis.Script, key storage.Key) (storage.Record, error) {
	if err := key.Validate(); err != nil {
		return storage.Record{}, err
	}
	reply, err := s.run(ctx, script, key)
	if err != nil {
		return storage.Record{}, failed(verb, key, err)
	}
	record, err := readRecord(reply, key)
	if err != nil {
		return storage.Record{}, failed(verb, key, err)
	}
	return record, nil
}

// run runs a script on the key.
func (s *Store) run(ctx context.Context, script *goredis.Script, key storage.Key, args ...any) (any, error) {
	return s.runOn(ctx, script, s.name(key), args)
}

// runOn runs a script on the server's key.
func (s *Store) runOn(ctx context.Context, script *goredis.Script, name string, args []any) (any, error) {
	return replyFor(0, script.Run(ctx, s.client, []string{name}, args...))
}

// runGathered is run, in a single round trip with others made at the same
// moment. The arguments must not be changed by anybody.
func (s *Store) runGathered(ctx context.Context, script *goredis.Script, key storage.Key, args ...any) (any, error) {
	c := s.call(ctx, script, key, args...)
	server := s.server(ctx, c)
	if server == nil {
		return c.alone()
	}
	return s.gatherer.run(c, server)
}

func (s *Store) call(ctx context.Context, script *goredis.Script, key storage.Key, args ...any) *gathered {
	name := s.name(key)
	return &gathered{ctx: ctx, script: script, name: name, args: args, alone: func() (any, error) {
		return s.runOn(ctx, script, name, args)
	}}
}

func large(arg any) bool {
	text, ok := arg.(string)
	return ok && len(text) > maxShared
}

// server returns the key's server, or nil if unknown, or for a call not to be
// gathered.
func (s *Store) server(ctx context.Context, c *gathered) *goredis.Client {
	if slices.ContainsFunc(c.args, large) {
		return nil
	}
	switch client := s.client.(type) {
	case *goredis.Client:
		return client
	case *goredis.ClusterClient:
		if node, err := client.MasterForKey(ctx, c.name); err == nil {
			return node
		}
	}
	return nil
}

// settled reads the reply of a script saying whether the lease was held.
func settled(verb string, key storage.Key, reply any, err error) error {
	switch {
	case err != nil:
		return failed(verb, key, err)
	case reply == int64(1):
		return nil
	case reply == int64(0):
		return fmt.Errorf("%s %s: %w", verb, key, storage.ErrLeaseLost)
	default:
		return failed(verb, key, unexpected(reply))
	}
}

// longest bounds durations so the scripts' numbers stay exact. No server keeps
// anything so long.
const longest = 100 * 365 * 24 * time.Hour

// micros returns a duration for the scripts, rounded up.
func micros(d time.Duration) string { return in(time.Microsecond, d) }

// millis is micros in the server's unit for expiry.
func millis(d time.Duration) string { return in(time.Millisecond, d) }

func in(unit, d time.Duration) string {
	return strconv.FormatInt(int64((min(d, longest)+unit-1)/unit), 10)
}
