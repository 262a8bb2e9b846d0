// Package backoff spaces attempts at what may pass.
//
// Non-goals: deciding what may pass, giving up.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Range is from the first wait, which doubles from attempt to attempt, to the
// longest. Both are required.
type Range struct{ First, Longest time.Duration }

// Wait returns the wait after the nth failed attempt, counting from 1. It is
// drawn from the upper half of what the doubling gives, so that many clients do
// not return at the same moment.
func (r Range) Wait(n int) time.Duration {
	d := r.First
	for range n - 1 {
		if d >= r.Longest {
			break
		}
		d *= 2
	}
	d = min(d, r.Longest)
	return d/2 + rand.N(d/2+1)
}

// Series counts the attempts of one purpose. Series is for a single goroutine.
type Series struct {
	Range
	failed int
}

// Next returns the wait after one more failed attempt.
func (s *Series) Next() time.Duration {
	s.failed++
	return s.Wait(s.failed)
}

// Reset begins anew, after a success.
func (s *Series) Reset() { s.failed = 0 }

// Pause sleeps for the next wait.
func (s *Series) Pause(ctx context.Context) error { return Sleep(ctx, s.Next()) }

// Sleep returns nil after d, or ctx's cause as soon as ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
