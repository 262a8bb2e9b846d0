package consumer

import (
	"sync"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
)

// position is where a record is.
type position struct {
	topic     string
	partition int32
	offset    int64
}

// maxPendings bounds everything kept of records perhaps never seen again, after
// their partition has gone to another process: a dropped record costs at most
// another call of the handler.
const maxPendings = 10_000

// pendings keep the pending state of records between two calls.
type pendings struct {
	mu sync.Mutex
	of map[position]*idempotency.Pending
}

// take returns the record's pending state, once: a Pending is for a single call
// at a time.
func (p *pendings) take(at position) *idempotency.Pending {
	p.mu.Lock()
	defer p.mu.Unlock()
	pending := p.of[at]
	delete(p.of, at)
	return pending
}

func (p *pendings) keep(at position, pending *idempotency.Pending) {
	if pending == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for old := range p.of {
		if len(p.of) < maxPendings {
			break
		}
		delete(p.of, old)
	}
	p.of[at] = pending
}
