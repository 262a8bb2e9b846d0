// Package retention keeps an outbox table from growing: beside the connector's
// stream it deletes rows, or drops partitions, that are published and older than
// asked, and creates partitions ahead.
//
// Invariants:
//
//  1. Only what lies behind the confirmed position goes. A row is taken only if
//     the writing transaction had ended before a moment whose log position is
//     confirmed; a clock decides about age, never about safety.
//  2. No statement holds many locks for long: rows go by ranges of pages, each
//     in a separate transaction followed by a rest, and a lock on a whole table
//     is waited for briefly and asked for again later.
//  3. A failure never stops the stream. Failures are logged, counted and tried
//     again.
//
// Why a row's transaction and not the id or time decides: transactions commit
// in another order than they began, so an old row may have become visible a
// moment ago. PostgreSQL keeps the writing transaction with each row (xmin),
// and a snapshot's lower bound says which transactions have all ended.
//
// Non-goals: polled tables (poll mode deletes what it published), archiving,
// vacuuming: autovacuum does that.
package retention
