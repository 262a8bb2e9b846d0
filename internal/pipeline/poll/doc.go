// Package poll is the pipeline for databases that allow no logical replication:
// it claims unpublished rows of the outbox table, publishes them, and marks or
// deletes them once the broker has acknowledged them. The table is its only
// state: there is no slot, no publication and no checkpoint.
//
// A batch is a single transaction (claim.go):
//
//	BEGIN                              idle_in_transaction_session_timeout is set
//	pg_try_advisory_xact_lock(lane)    of as many lanes as this instance's share
//	SELECT … FOR UPDATE SKIP LOCKED    the oldest unpublished rows of those lanes
//	  deliver, at most source.poll.claim_timeout
//	UPDATE or DELETE; COMMIT           of what the broker acknowledged
//
// Everything that an instance holds it holds in this transaction. If it dies, or
// is cut off, or sleeps for longer than the server waits for it, the server ends
// the transaction: the rows are free again, and a late COMMIT fails. It also
// works through a pooler in transaction mode, since nothing outlives the
// transaction.
//
// Run owns and joins all goroutines:
//
//	first worker   polls; wakes the others while there is a backlog
//	other workers  claim and mark while another one delivers
//	listener       waits for notifications, on a connection of its own
//
// Invariants:
//
//  1. A row is marked only after its event was acknowledged, dead lettered or
//     skipped by order, by the transaction that has held the row since before
//     it was read.
//  2. Of one key's rows, none is published while an earlier one that was
//     visible is not: a row another session holds, or has just changed, holds
//     back the later rows of its key, and only those: where they crowd out
//     others, the claim reads again without them. A single statement reads a
//     batch, so it sees one state of the table: if it sees a transaction's
//     rows, it sees those of all that committed before it.
//  3. Rows that one statement sees are in the order of source.poll.order_by,
//     and rows seen later come later. So rows of a key come in commit order if
//     their transactions take turns (as they do when each changes the same row
//     of the aggregate) and the order column's values rise with the turns, as
//     those of a sequence do and those of clock_timestamp(). A column with
//     DEFAULT now() has the transaction's beginning, which may have been before
//     the wait for its turn; see docs/how-to/polling.md.
//  4. Lanes (a hash of the key, modulo their number) share the work out; order
//     does not rest on them. Instances that disagree about their number only
//     get in each other's way.
//  5. No transaction stays open for longer than source.poll.claim_timeout and
//     the statements around it. Everything acknowledged by then is marked, the
//     rest is free again.
//  6. Memory is bounded: each worker holds its share of
//     sink.kafka.max_buffered_bytes, and one row.
//
// A row with a lower id that commits late is no special case: there is no
// position that could be beyond it, and it is published when it can be seen.
//
// An instance that is suspended while it delivers sends nothing of it when it
// wakes after the server has ended the transaction (package lease): another one
// has published the same rows by then, and later ones of their keys. If the
// transaction ends earlier, as in a restart of the server, an instance that
// runs sees it, and gives the delivery up. If it was suspended then, or if the
// network keeps everything sent, then at most one batch for each worker may
// still come late. Such a row is a repetition: each producer's records of a key
// are an unbroken sequence that begins at or before the first unpublished row,
// so that the first occurrence of every event is in order. Consumers recognise
// a repetition by the header id.
//
// Non-goals: publishing updates or deletes of rows; rows that are inserted and
// deleted by the same transaction, which nobody else can see; an order among
// different keys; exactly once.
package poll
