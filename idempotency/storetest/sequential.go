package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// sequentialKeys is few, so the clients meet.
const sequentialKeys = 16

// recentCalls bounds everything remembered of a key for a report.
const recentCalls = 64

// run is a history with a fake clock: a call at a time.
type run struct {
	subject Subject
	oracle  oracle
	now     time.Duration
	keys    []*subjectKey
}

// subjectKey is a key with all possible records.
type subjectKey struct {
	key     storage.Key
	beliefs []belief
	recent  []call
}

func sequential(ctx context.Context, s Subject, o Options) error {
	r := run{subject: s, oracle: s.oracle()}
	scope := scope()
	for i := range sequentialKeys {
		r.keys = append(r.keys, &subjectKey{
			key:     storage.Key{Scope: scope, ID: strconv.Itoa(i)},
			beliefs: []belief{{}},
		})
	}
	clients := make([]*client, o.Clients)
	for i := range clients {
		clients[i] = s.newClient(i, o)
	}
	random := rand.New(rand.NewPCG(o.Seed, uint64(o.Clients)))
	for step := range o.Steps {
		k := r.keys[random.IntN(len(r.keys))]
		if random.IntN(5) == 0 {
			r.advance(r.jump(random, k, o.Lease))
		}
		c := clients[random.IntN(len(clients))]
		if err := r.step(ctx, c, k, c.next(k.key)); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	finisher := s.newClient(o.Clients, o)
	for _, k := range r.keys {
		err := finish(finisher, k.key, o.Lease, func(ask call) (call, error) {
			err := r.step(ctx, finisher, k, ask)
			return k.last(), err
		}, func(d time.Duration) { r.advance(d) })
		if err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	return nil
}

func (r *run) advance(d time.Duration) {
	r.subject.Advance(d)
	r.now += d
}

// jump returns a time to pass: any, or up to the edge of the key's next event.
func (r *run) jump(random *rand.Rand, k *subjectKey, lease time.Duration) time.Duration {
	edges := [...]time.Duration{k.beliefs[0].lease.lo, k.beliefs[0].due.lo, k.beliefs[0].forgotten.lo}
	edge := edges[random.IntN(len(edges))] + time.Duration(random.IntN(3)-1)*time.Microsecond
	if d := edge - r.now; d > 0 && d < 10*lease {
		return d
	}
	return time.Duration(random.Int64N(int64(lease/time.Microsecond))) * time.Microsecond
}

func (r *run) step(ctx context.Context, c *client, k *subjectKey, ask call) error {
	done, err := c.do(ctx, ask, k.key, func() time.Duration { return r.now })
	if err != nil {
		return fmt.Errorf("%s: %w", done, err)
	}
	var next []belief
	for _, b := range k.beliefs {
		next = append(next, r.oracle.after(b, done)...)
	}
	if len(next) == 0 {
		return violation(done, k.recent, k.beliefs)
	}
	k.beliefs = next
	if len(k.recent) == recentCalls {
		k.recent = append(k.recent[:0], k.recent[recentCalls/2:]...)
	}
	k.recent = append(k.recent, done)
	return nil
}

func (k *subjectKey) last() call { return k.recent[len(k.recent)-1] }
