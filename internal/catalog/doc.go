// Package catalog asks PostgreSQL: how to connect, about the server, its slots,
// publications and tables and their fitness, and for the rows of a snapshot. run,
// check, status and setup all ask here, so all get the same answer.
//
// Invariants:
//
//  1. Connections are opened in open.go and nowhere else. Each ends when the
//     server is silent for too long; Patient announces long statements.
//  2. Errors are told apart by SQLSTATE, never by text, and carry a
//     failure.Class.
//  3. A single function for all refuses a table, a slot or a publication:
//     CheckTable, Slot.Unfit, CheckPublication; a View has their verdicts.
//
// Non-goals: streaming (wal), outbox columns (transform), changes nobody asked
// for.
package catalog
