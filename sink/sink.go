// Package sink writes events to where consumers read them: Kafka, or JSON lines
// on a writer.
//
// Invariants of the Kafka sink:
//
//  1. Deliver returns nil only when every event is durable on all in-sync
//     replicas or was passed to Reject, which returned nil.
//  2. Within a partition, events become durable in the order given. While an
//     event's outcome is open, no later event of its partition is sent.
//  3. Reject is called with exactly the event that can never be written, not
//     with its neighbours in the batch.
//  4. Errors that may pass are retried for as long as the context lives;
//     nothing is dropped because of a count or a timeout.
//  5. An error that only an operator can fix ends the delivery with a
//     failure.Error that says what to do; one that means lost records is
//     failure.Loss.
//
// Invariants 2 and 3 rest on the round (see Kafka.Deliver): the broker accepts
// or refuses a batch as a whole, and the client goes on with the next batch of
// the partition, so a partition's share of a round is one batch and the next
// round waits until this one is settled. A client that a broker refused its
// producer id can never write, and is replaced (see Kafka.renew); nothing is in
// flight then.
//
// Transactions write into Kafka transactions instead, and have invariants of their
// own.
//
// Non-goals: lingering (the pipeline decides what is handed over when), the
// human-readable console output.
//
// Signatures here have internal types and may change with any release; package
// connector is for other programs.
package sink

import (
	"context"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Reject decides about an event that can never be written as it is. It is
// called from within Deliver, on its goroutine, when every earlier event of the
// same partition is durable and no later one was sent. A nil return means that
// the event is dealt with (its dead letter is durable, or it is skipped by
// order of the operator); any error stops the delivery.
type Reject func(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error

// Sink writes events. Its methods are called from one goroutine at a time.
// After an error from Deliver or DeadLetter only Close may be called: some
// events may still be in flight, and writing more could change the order.
type Sink interface {
	// Deliver writes the events in order and returns nil once each is durable
	// at the broker or was passed to reject, which returned nil. It retries
	// what may pass for as long as ctx lives. On an error some of the events
	// may have been written; none that follows an unwritten one of its
	// partition was. The error's failure.Class tells what it means. The slice is
	// the caller's again when Deliver returns.
	Deliver(ctx context.Context, events []*transform.Event, reject Reject) error

	// DeadLetter durably writes the dead letter of an event. The event may be
	// incomplete, as Router.Route left it. reject may call it.
	DeadLetter(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error

	// Close releases the sink's resources. It does not wait for anything.
	Close()
}
