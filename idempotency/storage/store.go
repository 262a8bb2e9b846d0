package storage

import (
	"context"
	"time"
)

// Store keeps a Record per key. Each method is an atomic compare-and-set on the
// server, durable (as far as the server is) when it returns, and safe for
// concurrent use, also by several processes. "Now" is the server's clock.
//
// After an error other than those of this package, a method may have been
// carried out. Each may be repeated with the same arguments: it then answers as
// it would have.
//
// A record is forgotten a retention after the last change and is then Absent. A
// fence still never repeats: it is the greater of the last fence plus one and
// the server's clock in microseconds, so the fence grows beyond a forgotten
// record, an emptied server or an empty replica, as long as clocks do not jump
// back further.
type Store interface {
	// Claim asks for the key. A record with another fingerprint (when both are
	// set) is ErrMismatch in every state. Otherwise:
	//
	//	Absent                              → Claimed, first attempt
	//	Processing, lease over              → Claimed, one more attempt; the last one Vanished
	//	Processing, by the same Owner       → Claimed, as before, but the lease starts anew:
	//	                                      the first answer was lost
	//	Processing, lease live              → InProgress, Wait until its end
	//	Retryable, due                      → Claimed, one more attempt
	//	Retryable, not due                  → NotDue, Wait until then
	//	Completed                           → Duplicate with Result
	//	Failed                              → GivenUp with Reason
	Claim(ctx context.Context, key Key, req ClaimRequest) (Claim, error)

	// Extend makes the lease end d from now, and keeps the record until then at
	// least. An ended lease without another claim since is extended too.
	// ErrLeaseLost otherwise, also for a forgotten record.
	Extend(ctx context.Context, lease Lease, d time.Duration) error

	// Complete stores the result (or nil) for the retention. A lease that ran out
	// but was not claimed by somebody else still completes. ErrLeaseLost and
	// ErrResultTooLarge leave the record as is. Repeated by the same lease on a
	// Completed key it is nil and changes nothing.
	Complete(ctx context.Context, lease Lease, result []byte, retention time.Duration) error

	// Fail gives the lease up. ErrLeaseLost leaves the record as is. A repetition
	// by the same lease on the resulting state (Failed if terminal, Retryable if
	// not) is nil and changes nothing.
	Fail(ctx context.Context, lease Lease, f Failure) error

	// Inspect returns the record, with State Absent when there is none. It
	// reads what was written last, not a replica.
	Inspect(ctx context.Context, key Key) (Record, error)
}

// Transactor is a Store that completes a key in the transaction in which the
// handler works: both are there, or neither. A Processor finds out by itself.
type Transactor interface {
	Store

	// Reserve waits, until ctx ends, for what a message takes, such as a
	// connection. No claim is made meanwhile. ErrBusy if ctx ended while others
	// had it all; any other error means that the store is not there.
	Reserve(ctx context.Context) (Work, error)
}

// Work is what Reserve has reserved for a message. One goroutine at a time uses
// it.
type Work interface {
	// Claim is Store.Claim. While another handler of the key works beyond the
	// lease the answer is InProgress.
	Claim(ctx context.Context, key Key, req ClaimRequest) (Claim, error)

	// Begin begins the transaction of the claim granted, and returns the context
	// for the handler. Until Release no other claim of the key is granted.
	Begin(ctx context.Context) (context.Context, error)

	// Commit completes the key as Store.Complete does, in the transaction, and
	// commits that. ErrResultTooLarge leaves the transaction as is. After
	// ErrInDoubt it may or may not be committed; after ErrEscaped a part of it may
	// be; after any other error nothing is, nor will be.
	Commit(ctx context.Context, result []byte, retention time.Duration) error

	// Release rolls back everything not committed and gives up everything
	// reserved. Release may be called again.
	Release(ctx context.Context)
}

// Maintainer is a Store, or a Runner, with periodic work. A consumer has the
// work done.
type Maintainer interface {
	// Maintain does the work until ctx ends, or returns if there is nothing to
	// do. It reports errors, and goes on.
	Maintain(ctx context.Context, report func(error))
}

// Operator is an operator's access to a Store.
type Operator interface {
	// Release makes the key claimable at once: Processing, Retryable and Failed
	// become Retryable, due, with nothing counted; a former owner's lease is lost
	// (the record's Owner is emptied, the fence and fingerprint stay). Absent
	// stays so. ErrCompleted otherwise: Purge such a key to have it run again. The
	// former record is returned.
	Release(ctx context.Context, key Key) (Record, error)

	// Purge forgets the matching records, in batches, and returns how many.
	Purge(ctx context.Context, f Filter) (int, error)
}

// Filter selects records.
type Filter struct {
	// Scope is required.
	Scope string
	// ID selects a single key; empty means all of the scope.
	ID string
	// States selects by state; empty means Completed and Failed: records neither
	// running nor still to run.
	States []State
	// UnchangedFor selects records whose last change is at least this old.
	UnchangedFor time.Duration
}

// ClaimRequest is a request for a key.
type ClaimRequest struct {
	// Owner is a token, unique to the claim (see NewOwner). Required.
	Owner string
	// Fingerprint is the payload's; empty is not compared. A granted claim leaves
	// the fingerprint, if any, in the record.
	Fingerprint Fingerprint
	// Lease is how long the claim excludes others. Required, at least 1 ms.
	Lease time.Duration
	// Retention is how long the record, with the count of attempts, is kept
	// without a settlement. Required, at least Lease.
	Retention time.Duration
}

// Claim is the answer to a ClaimRequest.
type Claim struct {
	Outcome Outcome
	// Lease is set when Claimed.
	Lease Lease
	// Attempts counts the granted claims, this one included.
	Attempts int
	// Vanished and Excused are the record's, set when Claimed.
	Vanished, Excused int
	// Wait is set for InProgress and NotDue, above 0.
	Wait time.Duration
	// Result is a Duplicate's. It belongs to the caller.
	Result []byte
	// Reason is the last failure's, if any.
	Reason string
	// Layer names the answering layer: LayerStore, or LayerMemory for a Duplicate
	// by memory alone.
	Layer Layer
}

// Failures returns how many earlier attempts failed through a fault of the
// message.
func (c Claim) Failures() int { return c.Attempts - 1 - c.Vanished - c.Excused }

// Layer names the answering part of a layered store.
type Layer string

// The layers. The empty Layer is LayerStore.
const (
	LayerStore  Layer = "store"
	LayerMemory Layer = "memory"
)

// Outcome is the outcome of a claim.
type Outcome uint8

// The outcomes of a claim.
const (
	Claimed    Outcome = iota + 1 // the caller holds the lease
	Duplicate                     // completed before
	InProgress                    // somebody else holds the lease
	NotDue                        // failed; not to be tried again yet
	GivenUp                       // failed for good
)

var outcomeNames = [...]string{"unknown", "claimed", "duplicate", "in_progress", "not_due", "given_up"}

// String returns the outcome's name in snake case, for metrics.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return outcomeNames[0]
}

// Lease is the right to settle a key. Lease is a value, free to be copied.
type Lease struct {
	Key   Key
	Owner string
	// Fence is the fencing token: greater than that of every earlier claim of the
	// key. A resource that remembers the greatest it has seen can refuse a holder
	// paused beyond the lease.
	Fence int64
}

// Failure says how an attempt failed.
type Failure struct {
	// Terminal makes the key Failed; otherwise it is Retryable.
	Terminal bool
	// Excused counts the attempt as failed through no fault of the message. Not
	// for Terminal.
	Excused bool
	// Unrun takes back the attempt the claim counted: the handler was not called.
	// Neither for Terminal nor with Excused.
	Unrun bool
	// RetryAfter is the least time until the next claim is granted; 0 is at once.
	RetryAfter time.Duration
	// Reason is for people; stores keep the first MaxReasonBytes.
	Reason string
	// Retention is how long the record is kept. Required.
	Retention time.Duration
}

// MaxReasonBytes bounds the reason stored.
const MaxReasonBytes = 1024
