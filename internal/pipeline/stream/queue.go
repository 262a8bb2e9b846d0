package stream

import (
	"context"
	"sync"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// item is an event on its way from intake to delivery.
type item struct {
	delivery.Item
	chunk  *wal.Chunk // retained for the event's bytes; nil for a snapshot's
	ticket checkpoint.Ticket
	memory int64 // in use while the item lives
}

// itemMemory is about the memory of an item alone: a place in the queue, in the
// batch and in the sink's round.
const itemMemory = 128

// queue hands items from the intake to the deliverer in order, and bounds the
// memory of all queued and all taken items not yet released: room blocks at the
// bound. A single goroutine pushes, and a single one takes.
type queue struct {
	limit int64 // of memory in flight; a single larger item may enter alone
	most  int64 // in a batch, ready at delivery.BatchBytes
	// public tells whether an event behind the first may be taken; nil: any.
	public func(*transform.Event) bool

	mu       sync.Mutex
	items    []item
	head     int       // items[:head] are taken
	held     int       // so many at the end the taker does not see yet
	holding  int64     // memory of the held items
	queued   int64     // size of the items seen by the taker
	inFlight int64     // memory of everything pushed and not released
	full     bool      // push waits for memory
	offered  bool      // the taker knows of the items
	taken    time.Time // when the last batch was
	rests    time.Time // until then only full batches are taken
	closed   bool

	interrupted bool // await is to return errInterrupted

	arrived chan struct{} // capacity 1: items were offered, or closed
	freed   chan struct{} // capacity 1: memory was released
}

func newQueue(limit int64) *queue {
	return &queue{limit: limit, most: delivery.BatchBytes, arrived: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
}

// room returns nil once so much memory is free; push takes the memory. If ctx
// ends first, room returns the cause of ctx. If the memory does not fit beside the
// held items, never freed before their end, room returns errOversized.
func (q *queue) room(ctx context.Context, memory int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held > 0 && q.holding+memory > q.limit {
		return errOversized
	}
	for q.inFlight > 0 && q.inFlight+memory > q.limit {
		q.full = true
		q.mu.Unlock()
		session.Wake(q.arrived) // no more comes: the taker must not linger
		select {
		case <-q.freed:
		case <-ctx.Done():
		}
		q.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	q.full = false
	return nil
}

// push appends an item. Never blocks: see room. The taker may not see the item
// before offer.
func (q *queue) push(it item) {
	q.mu.Lock()
	q.append(it)
	q.queued += it.Size
	full := q.fill()
	q.mu.Unlock()
	if full {
		session.Wake(q.arrived)
	}
}

// append is push. The caller holds mu.
func (q *queue) append(it item) {
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 { // otherwise a queue that is never empty would grow
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, it)
	q.inFlight += it.memory
}

// fill offers the items if they fill a batch, and reports so. The caller holds mu.
func (q *queue) fill() (full bool) {
	full = q.queued >= delivery.BatchBytes
	q.offered = q.offered || full
	return full
}

// offer shows the taker everything pushed: nothing more comes at once.
func (q *queue) offer() {
	q.mu.Lock()
	wake := !q.offered && q.head < q.seen()
	q.offered = q.offered || wake
	q.mu.Unlock()
	if wake {
		session.Wake(q.arrived)
	}
}

// await waits for offered items, and then until a batch is full, the bound is
// reached, or linger has passed since the last batch was taken, and the rest is
// over. So a first item goes at once, and a batch forms while another is on its
// way. await returns the first event of the batch, or nil once the queue is closed
// and empty, or errInterrupted after interrupt.
func (q *queue) await(ctx context.Context, linger time.Duration) (*transform.Event, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if q.takeInterrupt() {
			return nil, errInterrupted
		}
		wait, ready := q.poll(linger)
		if ready {
			return q.first(), nil
		}
		var lingered <-chan time.Time
		if wait > 0 {
			timer.Reset(wait)
			lingered = timer.C
		}
		select {
		case <-q.arrived:
		case <-lingered:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// first is the first event seen by the taker, or nil.
func (q *queue) first() *transform.Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head == q.seen() {
		return nil
	}
	return q.items[q.head].Event
}

// timerTick is the least time a timer takes while nothing else runs. A shorter
// wait would delay the batch's items.
const timerTick = time.Millisecond

// poll reports whether a batch is ready, or else how long to linger; 0: until an
// item arrives.
func (q *queue) poll(linger time.Duration) (wait time.Duration, ready bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.queued >= delivery.BatchBytes {
		return 0, true
	}
	switch {
	case q.head == q.seen():
		return 0, false
	case q.full:
		return 0, true
	case !q.offered:
		return 0, false
	}
	wait = max(linger-time.Since(q.taken), time.Until(q.rests))
	return wait, wait < timerTick
}

// take moves the next batch into dst[:0]: up to most bytes, or an event not public, at
// least the first item and all joined to it, if the taker sees any. Never blocks.
func (q *queue) take(dst []item) []item {
	dst = dst[:0]
	q.mu.Lock()
	defer q.mu.Unlock()
	var bytes int64
	for q.head < q.seen() {
		unit, size := q.unit()
		if len(dst) > 0 && (bytes+size > q.most || q.public != nil && !q.public(unit[0].Event)) {
			break
		}
		bytes += size
		dst = append(dst, unit...)
		clear(unit) // the queue must not keep the events alive
		q.head += len(unit)
	}
	q.queued -= bytes
	q.offered = q.head < q.seen()
	q.taken = time.Now()
	return dst
}

// rest lets the next batch form until then.
func (q *queue) rest(until time.Time) {
	q.mu.Lock()
	q.rests = until
	q.mu.Unlock()
}

// free gives the memory of taken items back to the bound.
func (q *queue) free(n int64) {
	q.mu.Lock()
	q.inFlight -= n
	q.mu.Unlock()
	session.Wake(q.freed)
}

// close lets take return the rest without lingering, and then nothing.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	session.Wake(q.arrived)
}

// bytes is the memory in flight.
func (q *queue) bytes() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inFlight
}
