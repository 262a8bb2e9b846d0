package stream

import (
	"slices"
	"sort"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// marksKept bounds the marks: a few minutes at a look every two seconds. For a longer
// time every second mark is left out, so that an age is exact to a hundredth.
const marksKept = 256

// marks tell when the server's log reached a position. So the age of the log behind
// a position is known, however the position moves. Marks belong to the log and not
// to a session. The zero value knows nothing. Not safe for concurrent use.
type marks []logMark

// logMark is an end of the server's log, and when it was first seen.
type logMark struct {
	end pg.LSN
	at  time.Time
}

// see notes the end of the log, and forgets marks passed by done. Marks beyond the end
// are of another log: a standby was promoted while behind.
func (m *marks) see(now time.Time, end, done pg.LSN) {
	kept := (*m)[:m.behind(end)]
	if first := kept.behind(done); first > 0 {
		kept = slices.Delete(kept, 0, first)
	}
	if end > done && (len(kept) == 0 || kept[len(kept)-1].end < end) {
		if len(kept) == marksKept {
			kept = kept.thinned()
		}
		kept = append(kept, logMark{end, now})
	}
	*m = kept
}

// thinned leaves out every second mark, but never the first.
func (m marks) thinned() marks {
	n := 0
	for i := 0; i < len(m); i += 2 {
		m[n] = m[i]
		n++
	}
	return m[:n]
}

// behind is how many marks are at or before the position.
func (m marks) behind(pos pg.LSN) int {
	return sort.Search(len(m), func(i int) bool { return m[i].end > pos })
}

// age is how long the server has had log beyond the position; 0 without any.
func (m marks) age(now time.Time, pos pg.LSN) time.Duration {
	if i := m.behind(pos); i < len(m) {
		return now.Sub(m[i].at)
	}
	return 0
}
