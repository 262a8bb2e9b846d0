// Package postgres keeps idempotency keys in PostgreSQL (14 or later), through
// pgx.
//
// Store is a storage.Store for a Processor, like the stores in Redis and
// DynamoDB. Transactional is also a storage.Transactor: claim first, then the
// handler's writes, outgoing events of package outbox and the completion in a
// single transaction. It is exactly once in effect, for everything written
// through Tx; no other store is. The business tables must therefore be in the
// same database as the table of keys.
//
//	Run ─▶ claim: one statement, committed by itself     counts the attempt
//	       begin, pg_try_advisory_xact_lock              keeps others away from now on
//	    ─▶ handler(ctx)                                  writes through Tx(ctx)
//	    ─▶ UPDATE … 'completed' WHERE owner AND fence    holds the row's lock
//	       commit
//
// An arrow is a round trip. Where the last message was not a new one, this one
// may not be either: then the claim is asked for by itself, and begin comes
// after the answer. The commit of a claim that shares its round trip waits
// neither for the disk nor for a replica: the handler's commit, later in the
// log, waits for both. A server crashing in between has forgotten the attempt,
// and rolled the transaction back.
//
// Behind the arrow of a message's commit may be the claim and begin of the
// worker's next message: the same statements, in transactions of their own, of
// which the server begins none before the commit has succeeded. Such a claim
// waits for nobody; whatever becomes of it, the commit's answer comes first.
//
// Invariants:
//
//  1. A key is claimed by a single statement, and settled by another that
//     changes the row only if owner and fence are the claim's.
//  2. A refused claim writes nothing.
//  3. A statement locks one row at most, a claim its turn before that, except
//     for Sweep and Purge, which pass over rows others have locked; so they
//     cannot deadlock.
//  4. Time is the server's, of one clock_timestamp() per decision. Those by which
//     claims of a key are granted are in the order of the claims.
//  5. Under Transactional, effects and completion commit together. Neither
//     locks nor leases are needed for that, only the fence; they spare work in
//     vain. A commit is sent behind the completion without waiting for the
//     answer; the server refuses the one if the other fails.
//  6. A commit whose outcome is unknown is never reported as handled unless the
//     record says so.
//
// # Claims
//
// A claim first reads. Unless the row says no, an INSERT … ON CONFLICT DO
// UPDATE in the same statement decides, on the newest version of the row; if it
// finds that somebody was faster, the statement is repeated. That costs a
// single round trip, and is right under every isolation level the pool may have
// for its default: serialization failures are repeated as well.
//
// Claims that write take turns at a key, by an advisory lock of two integers
// ending with the statement's commit, and read the clock in their turn. A
// purged row's fence is gone with it; a claim that read the clock before that
// row was claimed, and wrote after it was purged, would have a smaller one
// otherwise.
//
// # Two consumers at once
//
// Transactional's lock is an advisory one, on 64 bits of a hash of table and key,
// and not the row's: a claim, an operator's Release or a sweep would have to wait
// for the handler otherwise. A consumer that finds it taken is told Elsewhere at
// once. The transaction of a handler that dies is rolled back by the server,
// which frees the lock; the key can be claimed again once the short lease, too,
// is over. If the client's machine vanishes, the server frees it after
// Options.IdleTimeout, a server in the middle of a statement after
// its tcp_keepalives or tcp_user_timeout.
//
// Two keys with one hash exclude each other while they run: one is Elsewhere
// for so long. There is no other outcome.
//
// A Processor around a plain Store, on the same scope, does not know of the lock. Both may be mixed, as
// in a change from one to the other: the fence decides, and the one that is too
// late has Lost.
//
// # Retention
//
// A row is without effect from expires_at on, and removed by Sweep. With
// Options.SweepEvery, Maintain calls that, which a consumer starts by itself;
// otherwise somebody must, such as the operator's program by cron. The plain
// table is read as a whole by each sweep, and the expired rows are deleted in
// small batches, found by page rather than by an index: an index over
// expires_at would have to be changed with every change of a row, and no change
// would be a HOT update any more. A sweep of ten million rows reads two to
// three gigabytes.
//
// The partitioned table (Options.Partitioned) is for more than that. The
// partitions are 32 slots of a day, by the time within UUIDv7 ids, and one for
// other ids; schema_partitioned.sql says why. Sweep truncates a slot when the
// last row has expired. The limits:
//
//   - It helps where ids are UUIDv7 in lower case, as package outbox makes them;
//     the rest is deleted in batches.
//   - Retention and the age at which messages arrive must stay below 30 days in
//     sum. Beyond that, a slot is used again before it is empty; then nothing
//     breaks, but the slot is swept by batch.
//   - The role that sweeps must have TRUNCATE, or own the partitions; all of
//     them must be granted by themselves, as the sweep addresses each.
//   - To change a table from one kind to the other, create the new one under
//     another name, and let the old one be until the keys have expired only if
//     no message can come again meanwhile.
//
// # Durability
//
// A method's answer is as durable as the server's commit: with
// synchronous_commit=off a crash forgets completions. A failover to a replica
// that is behind does, too: use synchronous_commit=remote_write or higher with
// synchronous_standby_names where that matters. Under Transactional the effect
// is forgotten together with the completion, so it is still there once. The
// first claim of a key does not wait for that: a crash of the server may forget
// attempts of the last second that had no outcome. After a connection was lost
// claims wait for a minute's time, so a message that crashes the server is
// given up all the same.
//
// Non-goals: work outside of the database; other clients than pgx, whose
// transactions package guard can still protect; running Schema by itself.
package postgres
