package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// Options of Histories. All are optional.
type Options struct {
	// Steps is how many calls to make; 100,000 with a fake clock, 3,000 without.
	Steps int
	// Seed repeats a history with a fake clock; without a fake clock, only the
	// clients' choices. Random if 0. A failure names the seed.
	Seed uint64
	// Clients work at the same time; 8 if 0, 32 at most.
	Clients int
	// Skew bounds how far the clocks of the clients are off, where the subject
	// can be had with such clocks; 10 minutes if 0.
	Skew time.Duration
	// Lease is the usual lease, and all other times depend on it; 40 ms if 0.
	// Lease should be many times as long as a call.
	Lease time.Duration
}

// maxClients is the room in a bit mask.
const maxClients = 32

func (o Options) withDefaults(fake bool) Options {
	if o.Steps == 0 {
		o.Steps = 3000
		if fake {
			o.Steps = 100_000
		}
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	if o.Clients == 0 {
		o.Clients = 8
	}
	o.Clients = min(o.Clients, maxClients)
	if o.Skew == 0 {
		o.Skew = 10 * time.Minute
	}
	if o.Lease == 0 {
		o.Lease = 40 * time.Millisecond
	}
	return o
}

// Histories fails the test if the store answers a random history of calls in a
// way the oracle cannot explain. With a fake clock the calls are made in turn
// and time passes between them only.
func Histories(t *testing.T, s Subject, o Options) {
	t.Helper()
	o = o.withDefaults(s.Advance != nil)
	if err := histories(t, s, o); err != nil {
		t.Fatalf("seed %d, %d steps, %d clients: %v", o.Seed, o.Steps, o.Clients, err)
	}
}

func histories(t testing.TB, s Subject, o Options) error {
	if s.Advance != nil {
		return sequential(t.Context(), s, o)
	}
	return concurrent(t.Context(), s, o)
}

// newClient returns the nth client, with a separate clock.
func (s Subject) newClient(n int, o Options) *client {
	random := rand.New(rand.NewPCG(o.Seed, uint64(n)))
	c := &client{
		number: n, store: s.Store, operator: s.Operator, random: random, lease: o.Lease,
		keys: make(map[storage.Key]*notes),
	}
	if s.Skewed != nil && n > 0 {
		c.store = s.Skewed(time.Duration(random.Int64N(int64(2*o.Skew)+1)) - o.Skew)
	}
	return c
}

// violation is the error of an inexplicable call.
func violation(wrong call, before []call, beliefs []belief) error {
	text := fmt.Sprintf("key %q: the store contradicts its contract at\n  %s\nafter\n", wrong.key.ID, wrong)
	for _, c := range tail(before) {
		text += "  " + c.String() + "\n"
	}
	text += "when the key could be\n"
	for i, b := range beliefs {
		if i == maxBeliefs {
			text += fmt.Sprintf("  and %d more\n", len(beliefs)-i)
			break
		}
		text += "  " + b.String() + "\n"
	}
	return fmt.Errorf("%s", text)
}

// The bounds of a violation's text.
const (
	maxBeliefs = 4
	maxTail    = 20
)

// tail returns the calls since the last granted claim but one: earlier calls
// hardly matter.
func tail(calls []call) []call {
	claims := 0
	for i := len(calls) - 1; i >= 0; i-- {
		if calls[i].answer.claim.Outcome == storage.Claimed {
			claims++
		}
		if claims == 2 || len(calls)-i == maxTail {
			return calls[i:]
		}
	}
	return calls
}

// String shows the relevant times only.
func (b belief) String() string {
	text := fmt.Sprintf("%s owner=%s fence=%d attempts=%d", b.state, b.owner, b.fence, b.attempts)
	switch b.state {
	case storage.Absent:
		return text
	case storage.Processing:
		text += " lease until " + b.lease.String()
	case storage.Retryable:
		text += " due at " + b.due.String()
	}
	return text + " forgotten at " + b.forgotten.String()
}

func (s span) String() string {
	if s.lo == s.hi {
		return s.lo.String()
	}
	return s.lo.String() + "–" + s.hi.String()
}
