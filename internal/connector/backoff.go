package connector

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	shortestWait = 250 * time.Millisecond
	longestWait  = 5 * time.Second
)

// backoff doubles the wait from try to try, up to a limit, and spreads it so
// that many connectors do not come back at the same moment.
type backoff struct{ wait time.Duration }

func (b *backoff) next() time.Duration {
	b.wait = min(max(2*b.wait, shortestWait), longestWait)
	return b.wait/2 + rand.N(b.wait/2+1)
}

// sleep waits for d, or returns why ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
