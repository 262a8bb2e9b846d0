// Package poll is the pipeline for databases without logical replication: it claims
// unpublished rows of the outbox table, publishes them, and marks or deletes them
// once the broker has acknowledged them. The table is the only state: there is no
// slot, no publication and no checkpoint.
//
// A batch is a single transaction (claim.go):
//
//	BEGIN                              idle_in_transaction_session_timeout is set
//	pg_try_advisory_xact_lock(lane)    of as many lanes as the instance's share
//	SELECT … FOR UPDATE SKIP LOCKED    the oldest unpublished rows of the lanes
//	  deliver, at most source.poll.claim_timeout
//	UPDATE or DELETE; COMMIT           of the acknowledged rows
//
// An instance holds everything in the transaction. If the instance dies, is cut off,
// or sleeps for longer than the server waits, the server ends the transaction: the
// rows are free again, and a late COMMIT fails. As nothing outlives the transaction,
// a pooler in transaction mode will do.
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
//     skipped by order, by the transaction holding the row since before the read.
//  2. No row of a key is published while an earlier visible row is not: a row held
//     by another session, or just changed, holds back the later rows of its key,
//     and no others: where they crowd out others, the claim reads again without
//     them. A single statement reads a batch, and sees a single state of the
//     table: with a transaction's rows, those of all transactions committed
//     before.
//  3. Rows seen by a statement are in the order of source.poll.order_by, and rows
//     seen later come later. So rows of a key come in commit order if their
//     transactions take turns (as when each changes the same row of the aggregate)
//     and the order column's values rise with the turns, as with a sequence or
//     clock_timestamp(). A column with DEFAULT now() has the transaction's
//     beginning, perhaps before the wait for a turn; see docs/how-to/polling.md.
//  4. Lanes (a hash of the key, modulo their number) share the work out; order
//     does not rest on them. Instances with different numbers of lanes only get in
//     each other's way.
//  5. No transaction stays open for longer than source.poll.claim_timeout and
//     the statements around it. Everything acknowledged by then is marked, the
//     rest is free again.
//  6. Memory is bounded: each worker holds its share of
//     sink.kafka.max_buffered_bytes, and a row more.
//
// A late commit of a row with a lower id is no special case: no position could be
// beyond the row, and the row is published once visible.
//
// An instance suspended during a delivery sends nothing more when it wakes after the
// server has ended the transaction (package lease): another instance has published
// the same rows by then, and later rows of their keys. If the transaction ends
// earlier, as in a restart of the server, a running instance notices, and gives the
// delivery up. If the instance was suspended then, or if the network keeps
// everything sent, at most a batch for each worker may still come late. Such a row
// is a repetition: each producer's records of a key are an unbroken sequence from
// the first unpublished row or before, so the first occurrence of every event is in
// order. Consumers recognise a repetition by the header id.
//
// Non-goals: publishing updates or deletes of rows; rows inserted and deleted by the
// same transaction, visible to nobody else; an order among different keys; exactly
// once.
package poll
