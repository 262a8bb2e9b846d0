package stream

import (
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// recallCut takes over the place of the checkpoint within a transaction published in
// part. The place counts changes of the tables in use, and has no meaning for others.
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
