// Package stuck notices work that goes on after its context has ended.
package stuck

import (
	"context"
	"sync"
	"time"
)

// Watch calls tell(true) if the work still runs when its context has been over
// for patience. The caller calls stop when the work has ended; that calls
// tell(false) if tell(true) was called. tell is called once at a time.
func Watch(ctx context.Context, patience time.Duration, tell func(stuck bool)) (stop func()) {
	w := &watch{tell: tell}
	unwatch := context.AfterFunc(ctx, func() { w.overdue(patience) })
	return func() {
		unwatch()
		w.end()
	}
}

type watch struct {
	tell func(stuck bool)

	mu    sync.Mutex
	timer *time.Timer
	stuck bool
	ended bool
}

func (w *watch) overdue(patience time.Duration) {
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

func (w *watch) end() {
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
