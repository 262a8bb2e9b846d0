package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// patience is how long the poller waits for a full partition before it has
// fetching it paused. A pause throws away what the client has fetched ahead, so
// fast handlers should rather be waited for.
const patience = 20 * time.Millisecond

// limit bounds what is held of one partition.
type limit struct{ records, bytes int }

func (l limit) full(p *partition) bool {
	return p.progress.open.len() >= l.records || p.progress.bytes >= l.bytes
}

// hasRoom is reached later than full is left, lest fetching flutters.
func (l limit) hasRoom(p *partition) bool {
	return p.progress.open.len() <= l.records/2 && p.progress.bytes <= l.bytes/2
}

// room pauses fetching of partitions that are full, and resumes it. Its lock
// makes the client's state follow the scheduler's, whoever comes last.
type room struct {
	client    *kgo.Client
	scheduler *scheduler
	mu        sync.Mutex
}

// makeWay is called by the poller after each poll.
func (r *room) makeWay(ctx context.Context) {
	if !r.scheduler.anyFull() {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for waiting := true; waiting; {
		select {
		case <-r.scheduler.slack:
			if !r.scheduler.anyFull() {
				return
			}
		case <-timer.C:
			waiting = false
		case <-ctx.Done():
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if full := r.scheduler.pauseFull(); len(full) > 0 {
		r.client.PauseFetchPartitions(full)
	}
}

// resume is called by a worker that made room.
func (r *room) resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if free := r.scheduler.resumeFree(); len(free) > 0 {
		r.client.ResumeFetchPartitions(free)
	}
}

// release forgets the pauses of partitions that are given up: the client would
// keep them until the partitions come back.
func (r *room) release(parts []*partition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	gone := map[string][]int32{}
	for _, p := range parts {
		gone[p.topic] = append(gone[p.topic], p.number)
	}
	if len(gone) > 0 {
		r.client.ResumeFetchPartitions(gone)
	}
}

// anyFull reports whether a partition is full that is still fetched. If so,
// slack will be signalled.
func (s *scheduler) anyFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		if !p.paused && s.limit.full(p) {
			s.slackWanted = true
			return true
		}
	}
	return false
}

// slackened signals slack if a partition that just lost a record was waited
// for.
func (s *scheduler) slackened(p *partition) {
	if !s.slackWanted || s.limit.full(p) {
		return
	}
	s.slackWanted = false
	select {
	case s.slack <- struct{}{}:
	default:
	}
}

// pauseFull marks the partitions that are full and returns them.
func (s *scheduler) pauseFull() map[string][]int32 {
	return s.mark(true, s.limit.full)
}

// resumeFree marks those that have room again, and returns them.
func (s *scheduler) resumeFree() map[string][]int32 {
	return s.mark(false, s.limit.hasRoom)
}

func (s *scheduler) mark(paused bool, when func(*partition) bool) map[string][]int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	marked := map[string][]int32{}
	for _, p := range s.parts {
		if p.paused != paused && when(p) {
			p.paused = paused
			marked[p.topic] = append(marked[p.topic], p.number)
		}
	}
	return marked
}
