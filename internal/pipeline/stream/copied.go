package stream

import (
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// reportCopied says that the session starts behind the stored checkpoint, of
// which a failover lost the last: nobody shall wonder how the position got from
// the one to the other.
func (s *source) reportCopied(stored *checkpoint.Checkpoint, start pg.LSN) {
	if stored == nil || start <= stored.LSN {
		return
	}
	s.log.Warn("the standby that took over has a copy of the slot that is ahead of its checkpoint; going on from the slot's position, up to which we had confirmed",
		zap.Stringer("checkpoint", stored.LSN), zap.Stringer("start", start),
		zap.Bool("saved_by_this_process", start <= pg.LSN(s.checkpointer.saved.Load())))
}
