package stream

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// readPause is how long a stop waits for a reader between two transactions. The reader
// begins the next transaction, if at hand, before it looks for a stop.
const readPause = 20 * time.Millisecond

// whole lets a stopping reader go on to the end of the present transaction. A single
// goroutine uses it.
type whole struct {
	context.Context // ends once the reader must stop anywhere
	stopping        atomic.Bool
	within          atomic.Bool // a transaction
	release         func()
}

// untilWhole returns a reader's context, to be released, that ends after ctx: at most
// patience later, asked at the end of ctx.
func untilWhole(ctx context.Context, patience func() time.Duration) *whole {
	reading, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	w := &whole{Context: reading}
	unhook := context.AfterFunc(ctx, func() { // owner: w, ended by release
		w.stopping.Store(true)
		if longest := patience(); longest > 0 {
			_ = backoff.Sleep(reading, min(readPause, longest))
			if w.within.Load() {
				_ = backoff.Sleep(reading, longest-readPause)
			}
		}
		stop(context.Cause(ctx))
	})
	w.release = func() { unhook(); stop(nil) }
	return w
}

// at notes whether the reader is within a transaction, and reports whether to stop here.
func (w *whole) at(within bool) (stop bool) {
	if w.within.Load() != within {
		w.within.Store(within)
	}
	return !within && w.stopping.Load()
}
