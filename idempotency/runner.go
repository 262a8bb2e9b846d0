package idempotency

import (
	"context"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// Message is a delivery of a message.
type Message struct {
	// Key names the message. Required.
	Key Key
	// Fingerprint is the payload's, by FingerprintBytes or FingerprintJSON;
	// empty is not compared.
	Fingerprint storage.Fingerprint
	// Pending is the Result's of the message's last Run, or nil.
	Pending *Pending
}

// Key identifies a message for a single consumer.
type Key = storage.Key

// Handler does the work of a single message. The result (or nil) is kept for
// duplicates. The context ends before the lease can be lost; FenceFrom gives
// the fencing token. An error wrapped by Terminal is not tried again, one
// wrapped by Transient however often.
type Handler func(ctx context.Context) (result []byte, err error)

// Runner runs a handler at most once to completion per key. Processor is a
// Runner around any Store; around postgres.Transactional, the handler's writes
// commit together with the completion.
type Runner interface {
	// Run claims the message's key, runs the handler and settles the key. Run
	// blocks until then and may be called concurrently; handler is called at most
	// once, on the caller's goroutine. A message that contradicts its key is given
	// up here, too.
	//
	// The error is nil when the message is finished (Result.Done). Otherwise the
	// message must be given to Run again, after Result.Wait, with Result.Pending
	// as its Pending: otherwise a successful handler may be called again.
	Run(ctx context.Context, m Message, handler Handler) (Result, error)
}

// Result is the outcome of a Run.
type Result struct {
	Disposition Disposition
	// Attempt is the number of the ended attempt, from 1; 0 when the handler did
	// not run.
	Attempt int
	// Value is the handler's result: the run's or, for a duplicate, the stored
	// value.
	Value []byte
	// Reason says, for people, why the message was given up, if it was.
	Reason string
	// Wait is how long not to try again, where the message is not done.
	Wait time.Duration
	// Layer is the claim's.
	Layer storage.Layer
	// Pending is for the message's next Run, or nil.
	Pending *Pending
}

// Disposition is the outcome of a message.
type Disposition uint8

// The dispositions. A message is done after the first three.
const (
	Handled      Disposition = iota + 1 // the handler ran and the key is completed
	Skipped                             // a duplicate of a completed message
	DeadLettered                        // given up, now or before
	Elsewhere                           // somebody else holds the lease
	NotDue                              // the last attempt failed, and the next is not due
	Retry                               // the attempt failed
	Lost                                // the lease was lost; the handler's outcome is not recorded
	Unavailable                         // the store could not be asked, or did not answer
)

var dispositionNames = [...]string{"unknown", "handled", "skipped", "dead_lettered", "elsewhere", "not_due", "retry", "lost", "unavailable"}

// String returns the disposition's name in snake case, for metrics.
func (d Disposition) String() string {
	if int(d) < len(dispositionNames) {
		return dispositionNames[d]
	}
	return dispositionNames[0]
}

// Done tells whether the message is finished: the offset may be committed.
func (r Result) Done() bool {
	switch r.Disposition {
	case Handled, Skipped, DeadLettered:
		return true
	default:
		return false
	}
}

// DeadLetter is a message that is given up.
type DeadLetter struct {
	Message  Message
	Attempts int
	Reason   error
}

// Loss is a lease lost while, or after, the handler ran. Its side effects may
// have happened, and somebody else may do the same work too.
type Loss struct {
	Message Message
	Lease   storage.Lease
	// Result and Err are the handler's.
	Result []byte
	Err    error
}
