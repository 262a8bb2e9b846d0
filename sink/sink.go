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
	"time"

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

// Observer is told what an operator should see in a metric or in the readiness
// answer. Every member is optional. They are called from several goroutines
// and must not block.
type Observer struct {
	// Reconnect is called for each attempt to connect to a broker that follows
	// a failed one.
	Reconnect func()
	// PartitionsChanged is called when a topic in use got another number of
	// partitions: keys move to other partitions, so that the order of a key's
	// events no longer holds across the change.
	PartitionsChanged func(topic string, from, to int32)
	// TopicRemade is called when a topic in use was deleted and created again: what was
	// acknowledged there is gone with it.
	TopicRemade func(topic string)
	// TopicWaiting is called with true when a delivery stops for a topic that
	// does not exist, and with false when it goes on.
	TopicWaiting func(topic string, waiting bool)
	// Refused is called with a reason when brokers refuse records for what is no fault
	// of the events, so that they are tried again and again, and with "" when that is over.
	Refused func(reason, remedy string)
	// TopicUsed is called when events are to be written to a topic: the first time,
	// after it was gone, and at most once a minute.
	TopicUsed func(topic string)
	// Throttled is called when a broker makes the client wait because of a quota.
	Throttled func(wait time.Duration)
	// Answered is called for each answer of a broker about events that were sent
	// to it; see Probe.
	Answered func()
}

// complete gives members that are not set one that does nothing.
func (o *Observer) complete() {
	if o.Reconnect == nil {
		o.Reconnect = func() {}
	}
	if o.PartitionsChanged == nil {
		o.PartitionsChanged = func(string, int32, int32) {}
	}
	if o.TopicRemade == nil {
		o.TopicRemade = func(string) {}
	}
	if o.TopicWaiting == nil {
		o.TopicWaiting = func(string, bool) {}
	}
	if o.Refused == nil {
		o.Refused = func(string, string) {}
	}
	if o.TopicUsed == nil {
		o.TopicUsed = func(string) {}
	}
	if o.Throttled == nil {
		o.Throttled = func(time.Duration) {}
	}
	if o.Answered == nil {
		o.Answered = func() {}
	}
}
