// Package postgres keeps idempotency keys in PostgreSQL (14 or later), through
// pgx.
//
// Store is a storage.Store for a Processor, like the stores in Redis and
// DynamoDB. Transactional is also a storage.Transactor: claim first, then the
// handler's writes, outgoing events of package outbox and the completion in a
// single transaction: exactly once in effect, for everything written through Tx.
// No other store does so. The business tables must therefore be in the same
// database as the table of keys.
//
//	Run ─▶ claim: one statement, committed by itself     counts the attempt
//	       begin, pg_try_advisory_xact_lock              keeps others away from now on
//	    ─▶ handler(ctx)                                  writes through Tx(ctx)
//	    ─▶ UPDATE … 'completed' WHERE owner AND fence    holds the row's lock
//	       commit
//
// An arrow is a round trip. After a duplicate, the next message may be a
// duplicate, too: then the claim is asked for by itself, and begin comes after
// the answer. The commit of a claim sharing a round trip waits neither for the
// disk nor for a replica: the handler's commit, later in the
// log, waits for both. A server crashing in between has forgotten the attempt,
// and rolled the transaction back.
//
// Behind the arrow of a message's commit may be the claim and begin of the
// worker's next message: the same statements, in separate transactions, begun by
// the server only after the commit has succeeded. Such a claim waits for nobody.
// Whatever becomes of the claim, the commit's answer comes first.
//
// Invariants:
//
//  1. A key is claimed by a single statement, and settled by another, which
//     changes the row only if owner and fence are the claim's.
//  2. A refused claim writes nothing.
//  3. A statement locks a row at most, and a claim the key's turn before. Sweep
//     and Purge lock more, but pass over rows locked by others. So there is no
//     deadlock.
//  4. Time is the server's, of a single clock_timestamp() per decision. The times
//     of a key's granted claims are in the order of the claims.
//  5. Under Transactional, effects and completion commit together. The
//     fence ensures it; locks and leases only spare work in vain. A commit is sent
//     behind the completion without waiting for the answer; the server refuses the
//     commit if the completion fails.
//  6. A commit with an unknown outcome is never reported as handled unless the
//     record says so.
//
// # Claims
//
// A claim first reads. Unless the row says no, an INSERT … ON CONFLICT DO
// UPDATE in the same statement decides, on the newest version of the row; if
// somebody was faster, the statement is repeated. A claim costs a single round
// trip, and is right under every default isolation level of the pool:
// serialization failures are repeated as well.
//
// Claims that write take turns at a key, by an advisory lock of two integers
// ending with the statement's commit, and read the clock in their turn. A
// purged row's fence is gone. Otherwise a claim that read the clock before the
// row was claimed, and wrote after the purge, would have a smaller fence.
//
// # Two consumers at once
//
// Transactional's lock is an advisory lock, on 64 bits of a hash of table and
// key, and not the row's: a claim, an operator's Release or a sweep would have
// to wait for the handler otherwise. Another consumer is told Elsewhere at
// once. The server rolls a dead handler's transaction back, which frees the
// lock; the key can be claimed again once the short lease, too, is over. If the
// client's machine vanishes, the server frees the lock after
// Options.IdleTimeout, a server in the middle of a statement after its
// tcp_keepalives or tcp_user_timeout.
//
// Two keys with the same hash exclude each other while running: the second is
// Elsewhere for so long. There is no other outcome.
//
// A Processor around a plain Store, on the same scope, does not know of the lock.
// Both may be mixed, as during a change to the other: the fence decides, and the
// later of the two has Lost.
//
// # Retention
//
// A row is without effect from expires_at on, and removed by Sweep. With
// Options.SweepEvery, Maintain calls Sweep, and a consumer starts Maintain by
// itself; otherwise call Sweep, such as by the operator's program in cron. The
// plain table is read as a whole by each sweep, and the expired rows are deleted
// in small batches, found by page rather than by an index: an index over
// expires_at would have to be changed with every change of a row, and no change
// would be a HOT update any more. A sweep of ten million rows reads two to
// three gigabytes.
//
// The partitioned table (Options.Partitioned) is for more rows. The partitions
// are 32 slots of a day, by the time within UUIDv7 ids, and another for other
// ids; schema_partitioned.sql says why. Sweep truncates a slot when the
// last row has expired. The limits:
//
//   - Truncation needs UUIDv7 ids in lower case, as package outbox makes them; the
//     rest is deleted in batches.
//   - Retention and the age at which messages arrive must stay below 30 days in
//     sum. Beyond 30 days, a slot is used again before it is empty; then nothing
//     breaks, but the slot is swept by batch.
//   - The sweeping role must have TRUNCATE, or own the partitions; grant on each
//     partition, as the sweep addresses each.
//   - To change a table to the other kind, create the new table under another
//     name. Leave the old table until the keys have expired only if no message can
//     come again meanwhile.
//
// # Durability
//
// A method's answer is as durable as the server's commit: with
// synchronous_commit=off a crash forgets completions. So does a failover to a
// lagging replica: where such a loss matters, use
// synchronous_commit=remote_write or higher with synchronous_standby_names.
// Under Transactional the effect is forgotten together with the completion, and
// so still happens once. The first claim of a key does not wait for the disk: a
// crash of the server may forget the last second's attempts without an outcome.
// After a lost connection claims wait, for a minute's time, so a message
// crashing the server is given up all the same.
//
// Non-goals: work outside of the database; clients other than pgx (package guard
// can still protect their transactions); running Schema by itself.
package postgres
