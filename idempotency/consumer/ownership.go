package consumer

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// positions maps topic and partition to the position to commit.
type positions = map[string]map[int32]kgo.EpochOffset

// named returns the partitions named, or all for nil.
func (s *scheduler) named(ids map[string][]int32) []*partition {
	var parts []*partition
	if ids == nil {
		for _, p := range s.parts {
			parts = append(parts, p)
		}
		return parts
	}
	for topic, numbers := range ids {
		for _, n := range numbers {
			if p := s.parts[partitionID{topic, n}]; p != nil {
				parts = append(parts, p)
			}
		}
	}
	return parts
}

// closePartitions lets nothing start any more in the partitions named (nil
// for all), and returns them.
func (s *scheduler) closePartitions(ids map[string][]int32) []*partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := s.named(ids)
	for _, p := range parts {
		p.close()
	}
	return parts
}

// forget drops closed partitions. Their handlers change nothing any more.
func (s *scheduler) forget(parts []*partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range parts {
		if s.parts[p.partitionID] != p {
			continue
		}
		delete(s.parts, p.partitionID)
		if p.waiting > 0 {
			s.blocked--
		}
	}
	s.pausedChanged()
}

// runningIn counts the running handlers of the partitions.
func (s *scheduler) runningIn(parts []*partition) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, p := range parts {
		n += p.running
	}
	return n
}

// uncommitted returns the positions to commit of the partitions named, or of
// all for nil.
func (s *scheduler) uncommitted(ids map[string][]int32) positions {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := positions{}
	for _, p := range s.named(ids) {
		next, ok := p.progress.uncommitted()
		if !ok {
			continue
		}
		if found[p.topic] == nil {
			found[p.topic] = map[int32]kgo.EpochOffset{}
		}
		found[p.topic][p.number] = next
	}
	return found
}

// committed notes a committed position.
func (s *scheduler) committed(id partitionID, at kgo.EpochOffset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.parts[id]; p != nil {
		p.progress.committed = at
	}
}

// settleRunning waits until nothing runs in the closed partitions: for patience
// first, then, having ended the handlers' contexts with the cause, for grace.
// settleRunning returns how many were abandoned, and how many still run.
func (s *scheduler) settleRunning(parts []*partition, patience, grace time.Duration, cause error) (abandoned, stuck int) {
	if !awaitIdle(parts, patience) {
		abandoned = s.runningIn(parts)
	}
	for _, p := range parts {
		p.abandon(cause)
	}
	if abandoned > 0 {
		s.observer.abandoned(abandoned)
	}
	if !awaitIdle(parts, grace) {
		stuck = s.runningIn(parts)
	}
	return abandoned, stuck
}

// awaitIdle reports whether nothing runs in the partitions within d.
func awaitIdle(parts []*partition, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	for _, p := range parts {
		select {
		case <-p.idle:
		default:
			select {
			case <-p.idle:
			case <-ctx.Done():
				return false
			}
		}
	}
	return true
}
