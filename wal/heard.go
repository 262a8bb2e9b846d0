package wal

import (
	"sync/atomic"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lease"
)

// heard dates the server's answers on our clock, by the time the server wrote
// into them. Of one that waited in the socket while this process was suspended,
// the time at which it is read tells nothing.
//
// The difference of the clocks is not known. It is at most that of the first
// answer and the time before the stream was asked for, and at least that of any
// answer and the time at which it was read. With the larger one an answer is
// never taken for younger than it is, except where the server's clock was set
// forward and the answer that shows it waited, too.
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
