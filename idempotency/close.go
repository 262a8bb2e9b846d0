package idempotency

import (
	"context"
	"fmt"
	"sync"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// Close waits for the Runs in progress and for their background work, and ends
// the look for a silent store (Options.FailOpen). A later Run calls nothing: the
// result is Unavailable, and the error wraps storage.ErrClosed. The store and
// its client are the caller's, to be closed after the Processor.
//
// No outcome is lost. A claim for the next message, asked for with the
// completion of a message but not answered in time, is in doubt: the lease may
// keep the next message from others until its end.
//
// Close may be called again, and concurrently: each call waits. Close lasts as
// long as the longest handler, or the longest call of a store deaf to its
// context. A handler must not call Close. The contexts of Maintain and Check
// end those calls, not Close.
func (p *Processor) Close() { p.lifetime.close() }

// lifetime counts a Processor's calls in progress and their goroutines.
type lifetime struct {
	over context.Context // ends with close
	end  context.CancelFunc

	mu   sync.Mutex // no call begins after the end
	work sync.WaitGroup
}

func newLifetime() *lifetime {
	l := &lifetime{}
	l.over, l.end = context.WithCancel(context.Background())
	return l
}

// begin counts a call in progress, until finish. The error is ErrClosed.
func (l *lifetime) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over.Err() != nil {
		return storage.ErrClosed
	}
	l.work.Add(1)
	return nil
}

func (l *lifetime) finish() { l.work.Done() }

// background runs f beside a call in progress, perhaps beyond the call.
func (l *lifetime) background(f func()) { l.work.Go(f) }

func (l *lifetime) close() {
	l.mu.Lock()
	l.end()
	l.mu.Unlock()
	l.work.Wait()
}

// refused is the Result of a call after Close.
func (p *Processor) refused(m Message, err error) (Result, error) {
	r := Result{Disposition: Unavailable, Wait: p.options.retryAfter(1), Pending: m.Pending.of(m.Key)}
	return r, fmt.Errorf("message %q: %w", m.Key, err)
}
