// Package guard makes a change of state refuse to happen twice: idempotency
// needing no key, because the row itself says what was done.
//
// It is for PostgreSQL, in the transaction of the business writes:
//
//   - Transition moves a status from one of some states to another. A message
//     too early or too late is an error, unlike a repetition.
//   - Mark.Advance raises a version and refuses older and equal ones: for
//     events that carry the version of what they describe.
//   - Mark.Fence does the same with fencing numbers and refuses a holder that
//     has lost its lease.
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
// Validate returns an error for a Transition or Mark that cannot work: call it
// when the service starts, before the first message.
//
// Invariants:
//
//  1. Of any number of concurrent calls for one change, in transactions that
//     commit, exactly one returns true; the row stays locked until the
//     transaction ends, and the others wait for that.
//  2. False without an error means that nothing is left to do, and that nothing
//     was written.
//  3. All is done inside the transaction: if it is rolled back, nothing
//     happened.
//
// Under REPEATABLE READ and SERIALIZABLE those who waited get a serialization
// error (40001) instead; run the whole transaction again, as these levels demand
// anyway. Two transactions that guard the same rows in different orders can
// deadlock (40P01); that, too, is cured by running one again.
//
// Where one statement says it all, write that statement; the examples show
// them: an upsert keeping the newest version, and a write behind a fence.
//
// Non-goals: anything outside the database. A repetition finds the row changed
// even if the mail was never sent: put the mail behind an outbox event.
package guard
