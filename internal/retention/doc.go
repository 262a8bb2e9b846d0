// Package retention keeps an outbox table from growing: beside the connector's
// stream it deletes rows, or drops partitions, that are published and older than
// asked, and creates partitions ahead.
//
// Invariants:
//
//  1. Only rows before the confirmed position go. A row is taken only if the
//     writing transaction had ended before a moment with a confirmed log
//     position; a clock decides about age, never about safety.
//  2. No statement holds many locks for long: rows go by ranges of pages, each
//     in a separate transaction followed by a rest, and a lock on a whole table
//     is waited for briefly and asked for again later.
//  3. A failure never stops the stream. Failures are logged, counted and tried
//     again.
//
// Why a row's transaction and not the id or time decides: transactions commit
// in another order than they began, so an old row may have become visible a
// moment ago. PostgreSQL keeps the writing transaction with each row (xmin),
// and all transactions before a snapshot's lower bound have ended.
//
// Non-goals: polled tables (poll mode deletes published rows itself), archiving,
// vacuuming: autovacuum does.
package retention
