package stream

import (
	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// recallCut takes over the place within a transaction up to which the checkpoint
// says that it is published. That place counts changes of the tables that are
// read, so it has a meaning for these tables only.
func (s *source) recallCut(h *acquired) error {
	if h.found == nil || h.found.Cut.IsZero() {
		return nil
	}
	if h.found.Scope != s.scope() {
		return failure.Configf("start once with the tables and the mode of before, until the transaction is published",
			"the checkpoint is in the middle of transaction %s of %q, and the configuration names %q now", h.found.Cut, h.found.Scope, s.scope())
	}
	h.cp.Cut = h.found.Cut
	return nil
}

// recall takes over the checkpoint's cut, unless this process has read further.
func (in *intake) recall(cut checkpoint.Cut) {
	if !cut.IsZero() && in.cut.IsZero() && cut.Commit >= in.end {
		in.cut, in.cutMark, in.recalled = cut.Position(), cut.Landmark, true
		in.bounds.parted = cut.Commit
	}
}

// found notes that the server has sent the event at p, which may be the one at
// the checkpoint's cut.
func (in *intake) found(p pg.Position) error {
	if !in.recalled || p.Compare(in.cut) < 0 {
		return nil
	}
	if p != in.cut {
		return in.cutLost()
	}
	in.recalled = false
	return nil
}

// cutLost is the error of a transaction that does not have the event again up to
// which it was published, so that it is not known where to go on.
func (in *intake) cutLost() error {
	return failure.Lossf(catalog.AcceptGap, "transaction %s was published up to its change %d, and the server sends no event there now: publication or tables are not what they were",
		in.cutMark, in.cut.Seq)
}
