package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// All clients work on a key at a time, then leave the key for the next. So the
// search for an order of the calls stays cheap.
const (
	callsPerKey = 80
	hotKeys     = 3
)

// live is a history in real time.
type live struct {
	options Options
	scope   string
	begun   time.Time
	steps   atomic.Int64
}

func (l *live) now() time.Duration { return time.Since(l.begun) }

// key returns the nth step's key.
func (l *live) key(step int) storage.Key {
	group := step / (callsPerKey * hotKeys)
	return storage.Key{Scope: l.scope, ID: strconv.Itoa(group*hotKeys + step%hotKeys)}
}

func concurrent(ctx context.Context, s Subject, o Options) error {
	l := &live{options: o, scope: scope(), begun: time.Now()}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	calls := make([][]call, o.Clients)
	var clients sync.WaitGroup
	for i := range o.Clients {
		clients.Go(func() { // ends after the share of the steps, or when another failed
			var err error
			if calls[i], err = l.work(ctx, s.newClient(i, o)); err != nil {
				cancel(err)
			}
		})
	}
	clients.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	all, judge := slices.Concat(calls...), s.oracle()
	if err := explain(judge, all); err != nil {
		return err
	}
	last, err := l.finish(ctx, s.newClient(o.Clients, o), all)
	if err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	return explain(judge, append(all, last...))
}

// work makes calls until the steps are used up.
func (l *live) work(ctx context.Context, c *client) ([]call, error) {
	var calls []call
	for {
		step := int(l.steps.Add(1)) - 1
		if step >= l.options.Steps {
			return calls, nil
		}
		key := l.key(step)
		done, err := c.do(ctx, c.next(key), key, l.now)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", done, err)
		}
		calls = append(calls, done)
		if err := l.linger(ctx, c.random, done); err != nil {
			return nil, err
		}
	}
}

// linger lets time pass now and then: until a key can be had, or beyond a lease.
func (l *live) linger(ctx context.Context, random *rand.Rand, done call) error {
	var wait time.Duration
	switch a := done.answer.claim; {
	case a.Wait > 0 && random.IntN(2) == 0:
		wait = min(a.Wait, 2*l.options.Lease)
	case random.IntN(10) == 0:
		wait = time.Duration(random.Int64N(int64(l.options.Lease)))
	default:
		return nil
	}
	return backoff.Sleep(ctx, wait)
}

// finish completes every key used.
func (l *live) finish(ctx context.Context, c *client, used []call) ([]call, error) {
	seen := make(map[storage.Key]bool)
	var calls []call
	for _, u := range used {
		if seen[u.key] {
			continue
		}
		seen[u.key] = true
		var waited error
		err := finish(c, u.key, l.options.Lease, func(ask call) (call, error) {
			done, err := c.do(ctx, ask, u.key, l.now)
			calls = append(calls, done)
			return done, err
		}, func(d time.Duration) { waited = errors.Join(waited, backoff.Sleep(ctx, d)) })
		if err = errors.Join(err, waited); err != nil {
			return nil, err
		}
	}
	return calls, nil
}
