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

// maxPendings bounds everything kept of records that may never come again,
// because their partition has gone to another process: everything dropped costs
// at most one more call of the handler.
const maxPendings = 10_000

// pendings keep what is pending on records between two calls.
type pendings struct {
	mu sync.Mutex
	of map[position]*idempotency.Pending
}

// take returns what is pending on the record, once: a Pending is for a single
// call at a time.
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
