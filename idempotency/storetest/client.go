package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// client is a single process working on keys, with mistakes on purpose. It is
// for a single goroutine.
type client struct {
	number   int
	store    storage.Store
	operator storage.Operator // nil if there is none
	random   *rand.Rand
	lease    time.Duration // the usual lease; other times are made from it
	claims   int
	keys     map[storage.Key]*notes
}

// notes are a client's knowledge of a key.
type notes struct {
	held   storage.Lease   // zero without a lease, or after a crash
	former []storage.Lease // to be settled by a zombie
	last   call            // to be repeated, as if the answer was lost
}

// formerLeases bounds a zombie's memory of a key.
const formerLeases = 4

func (c *client) notes(key storage.Key) *notes {
	m := c.keys[key]
	if m == nil {
		m = &notes{}
		c.keys[key] = m
	}
	return m
}

// next chooses the next call about the key.
func (c *client) next(key storage.Key) call {
	m := c.notes(key)
	held := m.held.Owner != ""
	switch n := c.random.IntN(100); {
	case n < 6 && m.last.verb != 0:
		return m.last
	case n < 40 && held:
		return c.use(m.held)
	case n < 46 && len(m.former) > 0:
		return c.use(m.former[c.random.IntN(len(m.former))])
	case n < 50 && held:
		return c.use(c.forge(m.held))
	case n < 54:
		c.crash(m)
	case n < 62:
		return call{verb: inspect}
	case n < 64 && c.operator != nil:
		return call{verb: release}
	case n < 66 && c.operator != nil:
		return call{verb: purge, filter: c.filter(key)}
	}
	return call{verb: claim, request: c.request()}
}

// crash makes the client forget the lease, or now and then come back as a
// zombie with the lease.
func (c *client) crash(m *notes) {
	if m.held.Owner == "" {
		return
	}
	if len(m.former) == formerLeases {
		m.former = append(m.former[:0], m.former[1:]...)
	}
	m.former = append(m.former, m.held)
	m.held = storage.Lease{}
}

func (c *client) request() storage.ClaimRequest {
	c.claims++
	r := storage.ClaimRequest{
		Owner: fmt.Sprintf("c%d-%d", c.number, c.claims),
		Lease: c.lease * time.Duration(1+c.random.IntN(3)) / 2,
	}
	switch c.random.IntN(20) {
	case 0:
	case 1:
		r.Fingerprint = "b1:another"
	case 2:
		r.Fingerprint = "j1:payload"
	default:
		r.Fingerprint = "b1:payload"
	}
	r.Retention = c.retention(r.Lease)
	return r
}

// retention is long enough to outlive the history, or short enough for the key
// to be forgotten within.
func (c *client) retention(least time.Duration) time.Duration {
	if c.random.IntN(3) > 0 {
		return 1000*c.lease + least
	}
	return least + c.lease*time.Duration(c.random.IntN(4)) + storage.MinLease
}

// use does something with a lease, held or not.
func (c *client) use(l storage.Lease) call {
	switch c.random.IntN(3) {
	case 0:
		return call{verb: extend, lease: l, duration: c.lease * time.Duration(1+c.random.IntN(3)) / 2}
	case 1:
		results := []string{"", "done", fmt.Sprintf("result of %s\x00\xff", l.Owner)}
		return call{verb: complete, lease: l, result: results[c.random.IntN(len(results))], retention: c.retention(0)}
	default:
		f := storage.Failure{
			Terminal:   c.random.IntN(5) == 0,
			RetryAfter: c.lease * time.Duration(c.random.IntN(3)) / 2,
			Reason:     "failed by " + l.Owner,
		}
		if !f.Terminal {
			n := c.random.IntN(8)
			f.Excused, f.Unrun = n == 0, n == 1
		}
		f.Retention = c.retention(f.RetryAfter)
		return call{verb: fail, lease: l, failure: f}
	}
}

// forge alters a lease.
func (c *client) forge(l storage.Lease) storage.Lease {
	switch c.random.IntN(3) {
	case 0:
		l.Owner += "x"
	case 1:
		l.Fence++
	default:
		l.Fence--
	}
	return l
}

func (c *client) filter(key storage.Key) storage.Filter {
	f := storage.Filter{Scope: key.Scope, ID: key.ID}
	switch c.random.IntN(3) {
	case 0:
		f.States = []storage.State{
			storage.Processing, storage.Completed, storage.Retryable, storage.Failed,
		}
	case 1:
		f.UnchangedFor = c.lease
	}
	return f
}

// do carries the call out and takes in the answer. now is the history's clock.
// An error is no answer of the store.
func (c *client) do(ctx context.Context, ask call, key storage.Key, now func() time.Duration) (call, error) {
	ask.client, ask.key, ask.answer = c.number, key, answer{}
	ask.from = now()
	err := c.ask(ctx, &ask)
	ask.to = now()
	known, answer := plain(err)
	if !known {
		return ask, err
	}
	ask.answer.err = answer
	c.takeIn(ask)
	return ask, nil
}

func (c *client) ask(ctx context.Context, ask *call) (err error) {
	switch ask.verb {
	case claim:
		ask.answer.claim, err = c.store.Claim(ctx, ask.key, ask.request)
	case extend:
		err = c.store.Extend(ctx, ask.lease, ask.duration)
	case complete:
		err = c.store.Complete(ctx, ask.lease, []byte(ask.result), ask.retention)
	case fail:
		err = c.store.Fail(ctx, ask.lease, ask.failure)
	case inspect:
		ask.answer.record, err = c.store.Inspect(ctx, ask.key)
	case release:
		ask.answer.record, err = c.operator.Release(ctx, ask.key)
	case purge:
		ask.answer.purged, err = c.operator.Purge(ctx, ask.filter)
	}
	return err
}

func (c *client) takeIn(done call) {
	m := c.notes(done.key)
	m.last = done
	if done.verb == claim && done.answer.err == nil && done.answer.claim.Outcome == storage.Claimed {
		if m.held != done.answer.claim.Lease {
			c.crash(m)
		}
		m.held = done.answer.claim.Lease
	}
}
