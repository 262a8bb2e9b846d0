package stream

import (
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// reportCopied logs that the session starts beyond the stored checkpoint,
// because a failover lost the last one. The log then explains the jump between
// the two positions.
func (s *source) reportCopied(stored *checkpoint.Checkpoint, start pg.LSN) {
	if stored == nil || start <= stored.LSN {
		return
	}
	s.log.Warn("the standby that took over has a copy of the slot that is ahead of its checkpoint; going on from the slot's position, up to which we had confirmed",
		zap.Stringer("checkpoint", stored.LSN), zap.Stringer("start", start),
		zap.Bool("saved_by_this_process", start <= pg.LSN(s.checkpointer.saved.Load())))
}
