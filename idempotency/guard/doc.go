// Package guard makes a change of state refuse to happen twice: idempotency
// without a key, because the row itself tells.
//
// It is for PostgreSQL, in the transaction of the business writes:
//
//   - Transition moves a status from one of some states to another. A message
//     too early or too late is an error, unlike a repetition.
//   - Mark.Advance raises a version and refuses older and equal versions: for
//     events with the version of the described object.
//   - Mark.Fence does the same with fencing numbers and refuses a holder after
//     the loss of the lease.
//   - Applied remembers events in a table: for increments and all else leaving
//     no state to recognise a repetition by.
//
// The first question a handler asks is the guard's; the rest, outbox events
// included, happens only on true:
//
//	changed, err := paid.Apply(ctx, guard.PGX(tx), orderID)
//	if err != nil || !changed {
//		return err
//	}
//	_, err = outbox.Write(ctx, tx, readyForShipment)
//	return err
//
// Validate returns an error for an impossible Transition or Mark: call Validate
// at the service's start, before the first message.
//
// Invariants:
//
//  1. Of any number of concurrent calls for a change, in transactions that
//     commit, exactly one returns true; the row stays locked until the
//     transaction ends, and the others wait for the end.
//  2. False without an error means that nothing is left to do, and that nothing
//     was written.
//  3. All is done inside the transaction: if it is rolled back, nothing
//     happened.
//
// Under REPEATABLE READ and SERIALIZABLE the waiting calls get a serialization
// error (40001) instead; run the whole transaction again, as always under these
// levels. Two transactions that guard the same rows in different orders can
// deadlock (40P01): run the failed transaction again, too.
//
// Visible waits, before the transaction, until the row of an event can be read.
//
// Where a single statement is enough, write the statement; the examples have an
// upsert keeping the newest version, and a write behind a fence.
//
// Non-goals: anything outside the database. A repetition finds the row changed
// even if the mail was never sent: put the mail behind an outbox event.
package guard
