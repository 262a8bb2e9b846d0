package storetest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// racers is how many do the same thing at a time.
const racers = 64

// together runs f on racers goroutines, and waits for their end.
func together(f func(n int)) {
	var group sync.WaitGroup
	start := make(chan struct{})
	for n := range racers {
		group.Go(func() {
			<-start
			f(n)
		})
	}
	close(start)
	group.Wait()
}

// oneWinner lets all claim the key, and checks for a single grant, as the nth
// attempt.
func (b *bench) oneWinner(attempts int) storage.Lease {
	b.Helper()
	var got [racers]storage.Claim
	var errs [racers]error
	together(func(n int) {
		got[n], errs[n] = b.store.Claim(b.ctx, b.key, storage.ClaimRequest{
			Owner: fmt.Sprintf("racer-%d-%d", attempts, n), Fingerprint: "b1:payload", Lease: long, Retention: retention,
		})
	})
	var won []storage.Claim
	for n, c := range got {
		if errs[n] != nil {
			b.Fatalf("claim: %v", errs[n])
		}
		if c.Attempts != attempts {
			b.Fatalf("claim: %s with %d attempts, want %d", c.Outcome, c.Attempts, attempts)
		}
		switch c.Outcome {
		case storage.Claimed:
			won = append(won, c)
		case storage.InProgress:
			b.waits(c, long)
		default:
			b.Fatalf("claim: %s", c.Outcome)
		}
	}
	if len(won) != 1 {
		b.Fatalf("%d winners", len(won))
	}
	return won[0].Lease
}

var races = []scenario{
	{"one wins an absent key", func(b *bench) {
		b.complete(b.oneWinner(1), "won", nil)
		b.duplicate("won", 1)
	}},
	{"one wins after a lease", func(b *bench) {
		first := b.granted(b.requestFor(short), 1)
		b.pass(short)
		b.above(b.oneWinner(2), first)
	}},
	{"one wins a retryable key", func(b *bench) {
		first := b.granted(b.request(), 1)
		b.fail(first, storage.Failure{}, nil)
		b.above(b.oneWinner(2), first)
	}},
	{"one wins a forgotten key", func(b *bench) {
		req := b.requestFor(short)
		req.Retention = short
		first := b.granted(req, 1)
		b.pass(short)
		b.above(b.oneWinner(1), first)
	}},
	{"completing many times over", func(b *bench) {
		lease := b.granted(b.request(), 1)
		var errs [racers]error
		together(func(n int) { errs[n] = b.store.Complete(b.ctx, lease, []byte("result"), retention) })
		for _, err := range errs {
			b.expect("complete", err, nil)
		}
		b.duplicate("result", 1)
	}},
	{"completing against failing", func(b *bench) {
		lease := b.granted(b.request(), 1)
		var errs [racers]error
		together(func(n int) {
			if n%2 == 0 {
				errs[n] = b.store.Complete(b.ctx, lease, nil, retention)
			} else {
				errs[n] = b.store.Fail(b.ctx, lease, storage.Failure{Terminal: true, Retention: retention})
			}
		})
		for n, err := range errs {
			if (err == nil) != (errs[n%2] == nil) || err == nil && errs[1-n%2] == nil {
				b.Fatalf("both were carried out, or one only in part: %v", errs)
			}
			if err != nil {
				b.expect("settle", err, storage.ErrLeaseLost)
			}
		}
	}},
	{"many keys at a time", func(b *bench) {
		var errs [racers]error
		together(func(n int) {
			key := storage.Key{Scope: b.key.Scope, ID: fmt.Sprintf("many-%d", n)}
			c, err := b.store.Claim(b.ctx, key, storage.ClaimRequest{Owner: "owner", Lease: long, Retention: retention})
			if err == nil && c.Outcome != storage.Claimed {
				err = fmt.Errorf("claim %s: %s", key, c.Outcome)
			}
			if err == nil {
				err = b.store.Complete(b.ctx, c.Lease, nil, retention)
			}
			errs[n] = err
		})
		for _, err := range errs {
			b.expect("claim and complete", err, nil)
		}
	}},
	{"each call has its own answer", func(b *bench) {
		var bad [racers]string
		together(func(n int) { bad[n] = b.ownAnswers(n) })
		for n, text := range bad {
			if text != "" {
				b.Fatalf("key %d: %s", n, text)
			}
		}
	}},
}

// ownAnswers takes the nth key through a whole life, beside others, and names an
// answer of another key. Each key's calls differ in some way.
func (b *bench) ownAnswers(n int) string {
	key := storage.Key{Scope: b.key.Scope, ID: fmt.Sprintf("own-%d", n)}
	own, attempts := fmt.Sprintf("of-%d", n), 1+n%3
	req := storage.ClaimRequest{Owner: "owner", Lease: long, Retention: retention}
	var lease storage.Lease
	for attempt := 1; attempt <= attempts; attempt++ {
		c, err := b.store.Claim(b.ctx, key, req)
		if err != nil || c.Outcome != storage.Claimed || c.Attempts != attempt || attempt > 1 && c.Reason != own {
			return fmt.Sprintf("claim: %+v, %v; want attempt %d", c, err, attempt)
		}
		if lease = c.Lease; attempt == attempts {
			break
		}
		if err := b.store.Fail(b.ctx, lease, storage.Failure{Reason: own, Retention: retention}); err != nil {
			return fmt.Sprintf("fail: %v", err)
		}
	}
	stolen := lease
	stolen.Fence--
	if err := b.store.Complete(b.ctx, stolen, nil, retention); !errors.Is(err, storage.ErrLeaseLost) {
		return fmt.Sprintf("complete by a stranger: %v, want %v", err, storage.ErrLeaseLost)
	}
	if err := b.store.Complete(b.ctx, lease, []byte(own), retention); err != nil {
		return fmt.Sprintf("complete: %v", err)
	}
	if c, err := b.store.Claim(b.ctx, key, req); err != nil || c.Outcome != storage.Duplicate || string(c.Result) != own || c.Attempts != attempts {
		return fmt.Sprintf("claim of a completed key: %+v, %v; want %q after %d attempts", c, err, own, attempts)
	}
	return ""
}
