package poll

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// pace is the wait after a poll without rows: from interval on, twice as long each time,
// up to max. A single goroutine uses a pace.
type pace struct {
	interval, max time.Duration
	wake          <-chan struct{} // a notification
	next          time.Duration
}

// found begins anew, after a poll with rows.
func (p *pace) found() { p.next = 0 }

// wait returns after the wait, at a notification, or when ctx ends (with its
// cause).
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

// countEvery is how often the workers of all instances are counted while there
// is a backlog.
const countEvery = time.Second

// quota is how many lanes a worker takes: all of them without a backlog, so that a look
// sees every row; an equal part of them among the workers of all instances during a
// backlog. A quota is safe for concurrent use.
type quota struct {
	lanes   int
	workers int // of this instance

	mu      sync.Mutex
	present int // busy workers at the last count
	counted time.Time
}

// limit is for a worker; busy: the last batch was as large as possible. count tells
// whether to count the workers.
func (s *quota) limit(busy bool) (lanes int, count bool) {
	if !busy {
		return s.lanes, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if count = now.Sub(s.counted) >= countEvery; count {
		s.counted = now
	}
	among := max(s.present, s.workers)
	return (s.lanes + among - 1) / among, count
}

// among notes the number of workers.
func (s *quota) among(present int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.present = present
}

// rotated lists the lanes from a random lane on, so that workers do not all want the
// same lanes.
func (s *quota) rotated() []int {
	lanes := make([]int, s.lanes)
	first := rand.N(s.lanes)
	for i := range lanes {
		lanes[i] = (first + i) % s.lanes
	}
	return lanes
}
