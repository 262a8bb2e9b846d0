package session

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Question is a source's present question to the server beside the stream. The zero value
// is none. A Question is safe for concurrent use.
type Question struct{ begun atomic.Pointer[time.Time] }

// Ask begins a question, until answered is called.
func (q *Question) Ask() (answered func()) {
	now := time.Now()
	q.begun.Store(&now)
	return func() { q.begun.Store(nil) }
}

// Unready returns why readiness is lost, if the answer has taken longer than limit.
func (q *Question) Unready(limit time.Duration) (reasons []string) {
	if begun := q.begun.Load(); begun != nil {
		if silent := time.Since(*begun); silent > limit {
			reasons = append(reasons, fmt.Sprintf("PostgreSQL has not answered for %s", silent.Round(time.Second)))
		}
	}
	return reasons
}
