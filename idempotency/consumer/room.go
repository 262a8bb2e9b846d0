package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// patience is how long the poller waits for a full partition before it pauses
// fetching. A pause throws away what the client has fetched ahead, and after it
// the partition waits for the fetch in progress. So patience is fetchMaxWait: a
// pause should not cost more than the wait. A partition that took longer counts
// as slow, and is not waited for the next time.
const (
	fetchMaxWait = 500 * time.Millisecond // the client's, unless the options say otherwise
	patience     = fetchMaxWait
)

// limit bounds everything taken on of a single partition. Records beyond wait
// in the partition's inbox.
type limit struct{ records, bytes int }

// reached reports whether no more is taken on.
func (l limit) reached(p *partition) bool {
	return p.progress.open.len() >= l.records || p.progress.bytes >= l.bytes
}

// full reports whether no more should be fetched.
func (l limit) full(p *partition) bool { return len(p.inbox) > 0 || l.reached(p) }

// low reports whether more may be taken on. It is lower than reached, so that
// nothing is begun and ended all the time.
func (l limit) low(p *partition) bool {
	return p.progress.open.len() <= l.records/2 && p.progress.bytes <= l.bytes/2
}

// hasRoom reports whether more should be fetched.
func (l limit) hasRoom(p *partition) bool { return len(p.inbox) == 0 && l.low(p) }

// room pauses and resumes fetching of full partitions. Under the lock the
// client's state follows the scheduler's, in whatever order calls come.
type room struct {
	client    *kgo.Client
	scheduler *scheduler
	mu        sync.Mutex
}

// makeWay is called by the poller after each poll.
func (r *room) makeWay(ctx context.Context) {
	r.pause(func(p *partition) bool { return p.slow })
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
	r.pause(func(*partition) bool { return true })
}

// pause pauses the partitions that are full and chosen.
func (r *room) pause(chosen func(*partition) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	full := r.scheduler.mark(func(p *partition, now time.Time) bool {
		if p.paused || !r.scheduler.limit.full(p) || !chosen(p) {
			return false
		}
		p.paused, p.pausedAt = true, now
		return true
	})
	if len(full) > 0 {
		r.client.PauseFetchPartitions(full)
	}
}

// resume is called by a worker after making room.
func (r *room) resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	free := r.scheduler.mark(func(p *partition, now time.Time) bool {
		if !p.paused || !r.scheduler.limit.hasRoom(p) {
			return false
		}
		p.paused, p.slow = false, now.Sub(p.pausedAt) >= patience
		return true
	})
	if len(free) > 0 {
		r.client.ResumeFetchPartitions(free)
	}
}

// release forgets the pauses of partitions given up: the client would keep them
// until the partitions come back.
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

// anyFull reports whether a full partition is still fetched. If so, slack will
// be signalled.
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

// slackened signals slack after the loss of a record, if the partition was
// waited for.
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

// mark returns the partitions changed by setting.
func (s *scheduler) mark(set func(p *partition, now time.Time) bool) map[string][]int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	marked := map[string][]int32{}
	for _, p := range s.parts {
		if set(p, now) {
			marked[p.topic] = append(marked[p.topic], p.number)
		}
	}
	return marked
}
