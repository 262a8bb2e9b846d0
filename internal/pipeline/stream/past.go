package stream

import "slices"

// Past outlives a pipeline ended by ErrBeginAnew: since when the server's log has
// waited, and the failed sessions at a position. The zero value knows nothing.
type Past struct {
	progress   progress
	standstill standstill
}

// Past returns the pipeline's past, for the next pipeline.
func (h *Health) Past() Past {
	h.mu.Lock()
	defer h.mu.Unlock()
	past := Past{h.progress, h.standstill}
	past.progress.log = slices.Clone(h.progress.log)
	return past
}

// goOn begins with the past. The caller has the only reference to h.
func (h *Health) goOn(past Past) {
	limit := h.progress.limit
	h.progress, h.standstill = past.progress, past.standstill
	h.progress.limit = limit
	h.flush = h.progress.flushed()
	h.waited = len(past.progress.log) > 0
}
