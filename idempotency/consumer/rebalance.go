package consumer

import "context"

// revoked is called by the client before partitions are given up, with polls
// held up. The client goes on sending heartbeats meanwhile. ctx ends when the
// client is closed.
func (s *session) revoked(ctx context.Context, ids map[string][]int32) {
	parts := s.scheduler.closePartitions(notNil(ids))
	if len(parts) == 0 {
		return
	}
	abandoned, stuck := s.scheduler.settleRunning(parts, s.cfg.RevokeTimeout, s.cfg.RevokeTimeout, errRevoked)
	s.report("partitions are given up before their handlers ended", abandoned, stuck)
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RevokeTimeout)
	defer cancel()
	if err := s.committer.commitLast(ctx, ids); err != nil {
		s.cfg.Logger.Warn("cannot commit before partitions are given up, records will be consumed again", "error", err)
	}
	s.giveUp(parts)
}

// lost is called by the client when the partitions are already another's: too
// late for a commit.
func (s *session) lost(ids map[string][]int32) {
	parts := s.scheduler.closePartitions(notNil(ids))
	if len(parts) == 0 {
		return
	}
	abandoned, stuck := s.scheduler.settleRunning(parts, 0, s.cfg.RevokeTimeout, errPartitionLost)
	s.report("partitions were lost while handlers ran", abandoned, stuck)
	s.giveUp(parts)
}

func (s *session) report(message string, abandoned, stuck int) {
	if abandoned > 0 || stuck > 0 {
		s.cfg.Logger.Warn(message, "abandoned", abandoned, "still_running", stuck)
	}
}

// giveUp forgets partitions, once no commit with them is under way.
func (s *session) giveUp(parts []*partition) {
	s.committer.mu.Lock()
	s.scheduler.forget(parts)
	s.committer.mu.Unlock()
	s.room.release(parts)
}

// notNil keeps "no partitions" apart from "all".
func notNil(ids map[string][]int32) map[string][]int32 {
	if ids == nil {
		return map[string][]int32{}
	}
	return ids
}
