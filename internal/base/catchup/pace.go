package catchup

import (
	"context"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

const (
	// firstPause and longestPause are between two looks: a confirmation takes a
	// few milliseconds, or as long as the backlog.
	firstPause, longestPause = 5 * time.Millisecond, 100 * time.Millisecond
	// askAgain is how long the answer to a demand may take. The instance may have
	// started in between, or had no connection for notifications.
	askAgain = time.Second
)

// Pace spaces looks. The zero value is ready; it is for a single goroutine.
type Pace struct {
	pause time.Duration
	asked time.Time
}

// Ask reports whether the next look should ask the reader, too.
func (p *Pace) Ask() bool {
	now := time.Now()
	if now.Sub(p.asked) < askAgain {
		return false
	}
	p.asked = now
	return true
}

// Rest waits for the time of the next look, or returns ctx's cause.
func (p *Pace) Rest(ctx context.Context) error {
	p.pause = min(max(firstPause, p.pause+p.pause/2), longestPause)
	return backoff.Sleep(ctx, p.pause)
}
