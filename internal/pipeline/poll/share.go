package poll

import (
	"math/rand/v2"
	"sync"
	"time"
)

// shareEvery is how often the workers of all instances are counted while there
// is a backlog.
const shareEvery = time.Second

// share decides how many lanes a worker takes. While there is little to do, it
// takes all, so that one look sees every row. During a backlog, the workers of
// all instances take equal parts. It is safe for concurrent use.
type share struct {
	lanes   int
	workers int // of this instance

	mu      sync.Mutex
	present int // workers that had something to do, when they were counted
	counted time.Time
}

// limit is for a worker that found as much as it could take the last time, or
// not. count tells that it should count the workers.
func (s *share) limit(busy bool) (lanes int, count bool) {
	if !busy {
		return s.lanes, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if count = now.Sub(s.counted) >= shareEvery; count {
		s.counted = now
	}
	among := max(s.present, s.workers)
	return (s.lanes + among - 1) / among, count
}

// among notes how many workers there are.
func (s *share) among(present int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.present = present
}

// rotated lists the lanes from a random one on, so that workers do not all want
// the same ones.
func (s *share) rotated() []int {
	lanes := make([]int, s.lanes)
	first := rand.N(s.lanes)
	for i := range lanes {
		lanes[i] = (first + i) % s.lanes
	}
	return lanes
}
