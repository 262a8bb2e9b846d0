// Package sink writes events for consumers: to Kafka, or as JSON lines to a
// writer.
//
// Invariants of the Kafka sink:
//
//  1. Deliver returns nil only when every event is durable on all in-sync
//     replicas, or Reject returned nil for it.
//  2. Within a partition, events become durable in the order given. While an
//     event's outcome is open, no later event of its partition is sent.
//  3. Reject is called with exactly the event that can never be written, not
//     with the neighbours in the batch.
//  4. Transient errors are retried for as long as the context lives; nothing is
//     dropped because of a count or a timeout.
//  5. An error that only an operator can fix ends the delivery with a
//     failure.Error and a remedy; an error that means lost records is
//     failure.Loss.
//
// Invariants 2 and 3 rest on the round (see Kafka.Deliver): the broker accepts
// or refuses a batch as a whole, and the client goes on with the next batch of
// the partition. So a partition's share of a round is a single batch, and the
// next round waits for the outcome. A client refused a producer id by a broker can
// never write, and is replaced (see Kafka.renew); nothing is in flight then.
//
// Transactions write into Kafka transactions instead, and have invariants of their
// own.
//
// Non-goals: lingering (the pipeline decides when events are handed over), the
// human-readable console output.
//
// Signatures here have internal types and may change with any release; package
// connector is for other programs.
package sink

import (
	"context"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Reject decides about an event that can never be written unchanged. Deliver calls
// it, on the same goroutine, when every earlier event of the partition is durable
// and no later event was sent. Nil means that the event is dealt with (the dead
// letter is durable, or the event is skipped by order of the operator); any error
// stops the delivery.
type Reject func(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error

// Sink writes events. The methods are called from one goroutine at a time.
// After an error from Deliver or DeadLetter only Close may be called: some
// events may still be in flight, and further writes could change the order.
type Sink interface {
	// Deliver writes the events in order and returns nil once each is durable at
	// the broker, or reject returned nil for it. Transient errors are retried for
	// as long as ctx lives. After an error some of the events may have been
	// written, but none behind an unwritten event of its partition. The error has
	// a failure.Class. The slice is the caller's again when Deliver returns.
	Deliver(ctx context.Context, events []*transform.Event, reject Reject) error

	// DeadLetter durably writes the dead letter of an event, perhaps incomplete,
	// as Router.Route left it. A Reject may call DeadLetter.
	DeadLetter(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error

	// Close releases the sink's resources, and waits for nothing.
	Close()
}
