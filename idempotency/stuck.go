package idempotency

import (
	"context"
	"sync"
	"time"
)

// watchStuck calls tell(true) if the work still runs when the context has been
// over for patience. The caller calls stop when the work has ended; that calls
// tell(false) if tell(true) was called. tell is called once at a time.
func watchStuck(ctx context.Context, patience time.Duration, tell func(stuck bool)) (stop func()) {
	w := &overtime{tell: tell}
	unwatch := context.AfterFunc(ctx, func() { w.overdue(patience) })
	return func() {
		unwatch()
		w.end()
	}
}

// overtime watches work going on after the context has ended.
type overtime struct {
	tell func(stuck bool)

	mu    sync.Mutex
	timer *time.Timer
	stuck bool
	ended bool
}

func (w *overtime) overdue(patience time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	w.timer = time.AfterFunc(patience, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.ended {
			w.stuck = true
			w.tell(true)
		}
	})
}

func (w *overtime) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.stuck {
		w.stuck = false
		w.tell(false)
	}
}
