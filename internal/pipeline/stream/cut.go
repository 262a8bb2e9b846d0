package stream

import (
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// recallCut takes over the place within a transaction up to which the
// checkpoint says it is published. The place counts changes of the tables that
// are read, so it has a meaning only for them.
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
