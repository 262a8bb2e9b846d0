// Package sink writes events to where consumers read them.
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
type Sink interface {
	// Deliver writes the events in order and returns nil once each is durable
	// at the broker or was passed to reject, which returned nil. It retries
	// what may pass for as long as ctx lives. On an error some of the events
	// may have been written; none that follows an unwritten one of its
	// partition was. The error's failure.Class tells what it means.
	Deliver(ctx context.Context, events []*transform.Event, reject Reject) error

	// DeadLetter durably writes the dead letter of an event. The event may be
	// incomplete, as Router.Route left it.
	DeadLetter(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error

	// Close releases the sink's resources. It does not wait for anything.
	Close()
}
