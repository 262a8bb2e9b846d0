package sink

import (
	"context"
	"math/rand/v2"
	"time"
)

// The waits between attempts double from the first to the longest.
const (
	firstWait   = 100 * time.Millisecond
	longestWait = 2 * time.Second
)

// jittered returns the wait before attempt n+1, n counting from 1: drawn from
// the upper half of its range, so that many clients do not return at once.
func jittered(n int) time.Duration {
	d := min(firstWait<<min(max(n-1, 0), 10), longestWait)
	return d/2 + rand.N(d/2)
}

// backoff yields the waits of one series of attempts.
type backoff struct{ attempts int }

// wait pauses before the next attempt; it returns ctx's cause if ctx ends
// first.
func (b *backoff) wait(ctx context.Context) error {
	b.attempts++
	t := time.NewTimer(jittered(b.attempts))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
