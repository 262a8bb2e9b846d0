package stream

import "slices"

// Past is what outlives a pipeline that ends with ErrBeginAnew: since when the
// server's log has waited, and the sessions that failed at one position. The
// zero value knows nothing.
type Past struct {
	progress   progress
	standstill standstill
}

// Past is that of the pipeline, for the next one.
func (h *Health) Past() Past {
	h.mu.Lock()
	defer h.mu.Unlock()
	past := Past{h.progress, h.standstill}
	past.progress.log = slices.Clone(h.progress.log)
	return past
}

// goOn begins with what was known before. The caller has the only reference to h.
func (h *Health) goOn(past Past) {
	limit := h.progress.limit
	h.progress, h.standstill = past.progress, past.standstill
	h.progress.limit = limit
	h.flush = h.progress.flushed()
	h.waited = len(past.progress.log) > 0
}
