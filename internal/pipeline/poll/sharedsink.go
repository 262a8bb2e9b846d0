package poll

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lease"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// sharedSink is the workers' common sink. A sink takes a delivery at a time, and none
// after a failure: sharedSink makes the workers take turns, and opens a new sink in
// place of a failed one.
type sharedSink struct {
	open func() (sink.Sink, error)
	// lease is the sink's, and lasts as long as the claim of the rows in delivery;
	// between two deliveries no record could come late.
	lease *lease.Lease
	turn  chan struct{} // has an element while nobody delivers
	sink  sink.Sink     // nil: to be opened; guarded by turn
	// began is when the delivery in progress began; nil: no delivery. A time.Time has
	// the monotonic clock, so a change of the machine's clock does not matter.
	began atomic.Pointer[time.Time]
}

func newSharedSink(open func() (sink.Sink, error), held *lease.Lease) *sharedSink {
	o := &sharedSink{open: open, lease: held, turn: make(chan struct{}, 1)}
	o.turn <- struct{}{}
	return o
}

// use waits for the turn and calls fn. No write begins after until. If ctx ends first,
// use returns the cause of ctx.
func (o *sharedSink) use(ctx context.Context, until lease.Instant, fn func(sink.Sink) error) error {
	select {
	case <-o.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { o.turn <- struct{}{} }()
	if o.sink == nil {
		opened, err := o.open()
		if err != nil {
			return err
		}
		o.sink = opened
	}
	o.lease.Set(until)
	now := time.Now()
	o.began.CompareAndSwap(nil, &now)
	err := fn(o.sink)
	if err != nil {
		o.lease.End() // records on their way may be published again by now
		o.sink.Close()
		o.sink = nil
		return err // began stays: nothing has been acknowledged since
	}
	o.lease.Set(lease.Never)
	o.began.Store(nil)
	return nil
}

// stuck is how long deliveries have not been acknowledged; 0 without events to deliver.
func (o *sharedSink) stuck() time.Duration {
	if began := o.began.Load(); began != nil {
		return time.Since(*began)
	}
	return 0
}

// idle notes that no event is left to deliver.
func (o *sharedSink) idle() { o.began.Store(nil) }

// close closes the sink. No worker may be left.
func (o *sharedSink) close() {
	if o.sink != nil {
		o.sink.Close()
	}
}
