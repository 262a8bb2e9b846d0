package stream

import (
	"errors"

	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

// errOversized: everything held would exceed the queue's bound.
var errOversized = errors.New("what is held does not fit the queue")

// hold is push of an item hidden from the taker until seal or part.
func (q *queue) hold(it item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.append(it)
	q.held++
	q.holding += it.memory
}

// holds returns the number and the memory of the held items.
func (q *queue) holds() (items int, memory int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.held, q.holding
}

// seal shows the taker everything held, a whole transaction of the database, to be
// taken at once.
func (q *queue) seal() { q.show(true) }

// part shows the taker everything held, to be taken item by item.
func (q *queue) part() { q.show(false) }

func (q *queue) show(whole bool) {
	q.mu.Lock()
	held := q.items[q.seen():]
	for i := range held {
		held[i].Whole, held[i].Joined = whole, whole && i < len(held)-1
		q.queued += held[i].Size
	}
	q.held, q.holding = 0, 0
	full := q.fill()
	q.mu.Unlock()
	if full {
		session.Wake(q.arrived)
	}
}

// seen is the end of the items seen by the taker. The caller holds mu.
func (q *queue) seen() int { return len(q.items) - q.held }

// unit is the next item with all joined to it, to be taken at once. The caller
// holds mu.
func (q *queue) unit() (items []item, size int64) {
	for end := q.head; ; end++ {
		size += q.items[end].Size
		if !q.items[end].Joined {
			return q.items[q.head : end+1], size
		}
	}
}
