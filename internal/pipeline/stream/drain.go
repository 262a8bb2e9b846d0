package stream

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

// errNotHeld is why a stop does not wait for events in flight.
var errNotHeld = errors.New("this instance does not read the slot now, and another one may: nothing is written to Kafka")

// drain waits until the deliverer has emptied the queue. It gives up after
// errors.drain_timeout, or earlier if the deliverer waits for a missing topic.
func (r *Pipeline) drain(ctx context.Context, stopWorking context.CancelCauseFunc, delivered <-chan struct{}) {
	r.queue.close()
	if why := r.source.drained(ctx, delivered, r.health.missingTopics); why != nil {
		r.log.Warn("stopped before everything in flight was acked; it will be sent again after the next start",
			zap.Int("events", r.tracker.InFlight()), zap.NamedError("because", why))
		stopWorking(errDrained)
		<-delivered
	}
}

// drained waits for delivered, and returns the reason for giving up. Without the lease,
// nothing is written: the time is just enough to find nothing in flight.
func (s *source) drained(ctx context.Context, delivered <-chan struct{}, missing func() []string) error {
	limit := s.opts.DrainTimeout
	if !s.lease.Held() {
		limit = min(time.Second, limit)
	}
	why := session.Drain(ctx, delivered, limit, missing)
	if why != nil && !s.lease.Held() {
		return errNotHeld
	}
	return why
}

// ending is a context for the last words to the store or the server, after the end of ctx.
func (s *source) ending(ctx context.Context) (context.Context, context.CancelFunc) {
	return session.Ending(ctx, s.limits.close)
}
