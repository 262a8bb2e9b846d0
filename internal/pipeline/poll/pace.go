package poll

import (
	"context"
	"time"
)

// pace decides how long to wait after a poll that found nothing: from interval
// on, twice as long each time, up to max. One goroutine uses it.
type pace struct {
	interval, max time.Duration
	wake          <-chan struct{} // a notification
	next          time.Duration
}

// found begins anew, after a poll that found something.
func (p *pace) found() { p.next = 0 }

// wait returns after the wait, at a notification, or when ctx ends (its cause).
func (p *pace) wait(ctx context.Context) error {
	p.next = min(max(p.interval, 2*p.next), p.max)
	timer := time.NewTimer(p.next)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.wake:
		p.next = 0
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
