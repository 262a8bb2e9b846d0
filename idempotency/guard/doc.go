// Package guard makes a change of state refuse to happen twice: idempotency
// needing no key, because the row itself says what was done.
//
// It is for PostgreSQL, in the transaction of the business writes:
//
//   - Transition moves a status from one of some states to another. A
//     repetition is told from a message that comes too early or too late, an
//     error.
//   - Mark.Advance raises a version and refuses older and equal ones: for
//     events carrying the version of what they describe.
//   - Mark.Fence does the same with fencing numbers and refuses a holder whose
//     lease went to somebody else.
//   - Applied remembers events in a table: for increments and all else leaving
//     no state to recognise a repetition by.
//
// The first question a handler asks is the guard's; the rest, outbox events
// included, happens only if it answers true:
//
//	changed, err := paid.Apply(ctx, guard.PGX(tx), orderID)
//	if err != nil || !changed {
//		return err
//	}
//	_, err = outbox.Write(ctx, tx, readyForShipment)
//	return err
//
// A Transition or a Mark that cannot work is an error of Validate. A service
// calls that when it starts, and does not find out by the first message.
//
// Invariants:
//
//  1. Of any number of concurrent calls for one change, in transactions that
//     commit, exactly one returns true; the row stays locked until the
//     transaction ends, and the others wait for that.
//  2. False without an error means that nothing is left to do, and that nothing
//     was written.
//  3. Nothing is done outside the transaction: if rolled back, nothing
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
// Non-goals: everything not in the database. A repetition finds the row changed
// even if the mail was never sent: put the mail behind an outbox event.
package guard
