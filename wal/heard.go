package wal

import (
	"sync/atomic"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lease"
)

// heard dates the server's answers on our clock, by the time the server wrote into them. If
// an answer waited in the socket while the process was suspended, the time of the read tells
// nothing.
//
// The difference of the clocks is not known. It is at most the difference between the first
// answer's time and the time before the stream was asked for, and at least that between any
// answer's time and the time of its read. With the larger difference no answer is taken for
// younger, except after the server's clock was set forward, if the answers since waited, too.
type heard struct {
	ahead time.Duration // how far the server's clock is, at most; 0: not known
	last  atomic.Int64  // when the last answer was sent, a lease.Instant; 0: none was
}

// answer notes an answer with the server's time, read now.
func (h *heard) answer(sent time.Duration, opened, now lease.Instant) {
	if h.ahead == 0 {
		h.ahead = sent - time.Duration(opened)
	}
	h.ahead = max(h.ahead, sent-time.Duration(now))
	h.last.Store(int64(sent - h.ahead))
}
