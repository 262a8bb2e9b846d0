package consumer

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/ahead"
)

// Handler does the work of a single record. Handler may be called concurrently,
// for different records. The record's slices are the handler's to read, not to
// change: a retry and the dead letter use them again.
//
// It must heed the context, which ends, with one of this package's errors as
// the cause, when the partition is taken away or the consumer stops, and with
// storage.ErrLeaseLost before the lease can be lost. A panic is an error.
type Handler func(ctx context.Context, r *kgo.Record) error

// Process is a single attempt at a record: claim, handle, settle. The record is
// finished if the result is Done; otherwise it must be given to Process again,
// after the result's Wait. Once.Wrap makes one of a Handler; middlewares, such
// as that of package tracing, wrap one, and return after it has.
type Process func(ctx context.Context, r *kgo.Record) (idempotency.Result, error)

// delivery is what the context knows of the record being processed.
type delivery struct {
	record *kgo.Record
	// pending is what an earlier attempt left, or nil.
	pending *idempotency.Pending
	// turn is the record's; next returns the record coming next, or nil, if it may
	// be claimed now; with own, only the next of the lane. Both are nil in a poll
	// loop, and where middlewares may change records.
	turn *ahead.Turn
	next func(own bool) *kgo.Record
	// started (or nil) is called when the handler is.
	started func()
	// handled says the handler runs; result is what it has set.
	handled bool
	result  []byte
}

type deliveryKey struct{}

func withDelivery(ctx context.Context, d *delivery) context.Context {
	return context.WithValue(ctx, deliveryKey{}, d)
}

func deliveryFrom(ctx context.Context) *delivery {
	d, _ := ctx.Value(deliveryKey{}).(*delivery)
	return d
}

// SetResult makes the bytes the result of the context's handler, to be called
// on the handler's goroutine: the store keeps it with the record's key, and it
// is Result.Value of this record, and of each later one with the same id, where
// a middleware finds it. The last call counts. SetResult fails if the context
// is not a handler's.
func SetResult(ctx context.Context, result []byte) error {
	d := deliveryFrom(ctx)
	if d == nil || !d.handled {
		return errors.New("set a handler's result: the context is not that of a handler")
	}
	d.result = result
	return nil
}

// RecordFrom returns the record being processed, or nil outside of Process.
// Hooks of the Runner find their record with it.
func RecordFrom(ctx context.Context) *kgo.Record {
	if d := deliveryFrom(ctx); d != nil {
		return d.record
	}
	return nil
}
