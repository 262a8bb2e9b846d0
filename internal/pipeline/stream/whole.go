package stream

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// lull is how long a stop waits for a reader that is between two transactions.
// If one is at hand, the reader begins it before it looks whether to stop.
const lull = 20 * time.Millisecond

// whole lets a reader that is to stop go on to the end of the transaction it
// has begun. A single goroutine uses it.
type whole struct {
	context.Context // ends once the reader must stop wherever it is
	stopping        atomic.Bool
	within          atomic.Bool // a transaction
	release         func()
}

// untilWhole returns a reader's context that ends after ctx: patience, which is
// asked then, says how much later at most. It is to be released.
func untilWhole(ctx context.Context, patience func() time.Duration) *whole {
	reading, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	w := &whole{Context: reading}
	unhook := context.AfterFunc(ctx, func() { // owner: w, whose release ends it
		w.stopping.Store(true)
		if longest := patience(); longest > 0 {
			_ = backoff.Sleep(reading, min(lull, longest))
			if w.within.Load() {
				_ = backoff.Sleep(reading, longest-lull)
			}
		}
		stop(context.Cause(ctx))
	})
	w.release = func() { unhook(); stop(nil) }
	return w
}

// at notes whether the reader is within a transaction, and reports whether it is to
// stop here.
func (w *whole) at(within bool) (stop bool) {
	if w.within.Load() != within {
		w.within.Store(within)
	}
	return !within && w.stopping.Load()
}
