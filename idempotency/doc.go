// Package idempotency lets a consumer of at-least-once messages act once.
//
// A message's key is claimed in a storage.Store before the work and completed after it;
// between the two a lease, on the server's clock, keeps others away, and a fencing
// number tells a holder paused too long from its successor. A Processor does the
// claiming, extending and settling around a handler; the package consumer does it for
// records of franz-go.
//
// Invariants:
//
//  1. A completed key is never run again within the retention.
//  2. At most one owner has a live lease, and no two claims share a fence.
//  3. A message is done only when the key is completed, was completed before,
//     or the dead letter is durable. In all other cases there is another try.
//  4. A handler's outcome stands: while the process lives and has the message,
//     only the recording is tried again (Pending).
//  5. An attempt is counted when claimed. An attempt taking the process down is
//     not forgotten, nor counted as a failure: the attempt vanished, and the
//     message runs alone until it has an outcome.
//
// What no store can give: work outside the store's own transaction may happen
// twice when a process dies between the work and the completion. Only
// postgres.Transactional closes the gap, for work in the same database; the
// package guard helps where the work is a change of state.
//
// Non-goals: ordering, delivery, distributed locks for other purposes.
package idempotency
