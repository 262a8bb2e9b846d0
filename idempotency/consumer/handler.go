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
// It must heed its context, which ends, with an error of this package as the
// cause, when the partition is taken away or the consumer stops, and with
// storage.ErrLeaseLost before the lease can be lost. A panic is an error.
type Handler func(ctx context.Context, r *kgo.Record) error

// Process is a single attempt at a record: claim, handle, settle. The record is
// finished if the result is Done; otherwise the record must be given to Process
// again, after the result's Wait. Once.Wrap makes a Process of a Handler;
// middlewares, such as package tracing's, wrap a Process, and return after it
// has.
type Process func(ctx context.Context, r *kgo.Record) (idempotency.Result, error)

// delivery is what the context knows of the record being processed.
type delivery struct {
	record *kgo.Record
	// pending was left by an earlier attempt, or is nil.
	pending *idempotency.Pending
	// turn is the record's; next returns the next record if ready to be claimed,
	// or nil; with own, only the next of the lane. Both are nil in a poll loop,
	// and where middlewares may change records.
	turn *ahead.Turn
	next func(own bool) *kgo.Record
	// started (or nil) is called with the handler.
	started func()
	// handled says that the handler runs; result is the handler's (SetResult).
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

// SetResult makes the bytes the result of the handler with this context. The
// store keeps them with the record's key; they are Result.Value for this record
// and for later ones with the same id, where a middleware finds them. SetResult
// must be called on the handler's goroutine. The last call counts. SetResult
// fails if the context is not a handler's.
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
