package idempotency

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// unwaited is how long to wait where a Result does not say.
const unwaited = 100 * time.Millisecond

// RunUntilDone runs the message until finished, with the waits Run asks for:
// for loops with message after message from a client of any kind. The error is
// nil once the message is Done, and may be acknowledged. Otherwise ctx has
// ended, and the error joins its cause with the last attempt's; or the Processor
// is closed, and the error wraps storage.ErrClosed.
func (p *Processor) RunUntilDone(ctx context.Context, m Message, handler Handler) (Result, error) {
	for {
		r, err := p.Run(ctx, m, handler)
		if r.Done() {
			return r, nil
		}
		if errors.Is(err, storage.ErrClosed) {
			return r, err
		}
		if cause := backoff.Sleep(ctx, cmp.Or(r.Wait, unwaited)); cause != nil {
			return r, errors.Join(cause, err)
		}
		m.Pending = r.Pending
	}
}
