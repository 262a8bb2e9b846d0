package relay

import (
	"context"
	"math/rand/v2"
	"time"
)

// The waits between attempts double from the first to the longest.
const (
	firstWait   = 100 * time.Millisecond
	longestWait = 10 * time.Second
)

// backoff yields jittered, doubling waits: each is drawn from the upper half of
// its range, so that many clients do not return at once.
type backoff struct{ last time.Duration }

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, firstWait), longestWait)
	return b.last/2 + rand.N(b.last/2)
}

func (b *backoff) reset() { b.last = 0 }

// sleep waits for d and reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
