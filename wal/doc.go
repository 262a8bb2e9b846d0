// Package wal speaks the replication protocol: it takes over a connection,
// reads what the walsender sends from a slot, decodes pgoutput, puts rows and
// logical messages in their order, and reports back everything confirmed.
//
// The way of a byte: socket → pace (rests after small reads) → frame (cuts
// copy data) → decode (pgoutput) → order (rows and messages) →
// Stream.Next. Beside it, one goroutine sends the standby status on a timer, so
// a slow reader keeps the connection.
//
// Invariants:
//
//  1. A position is confirmed only after Confirm was called with it, and never
//     beyond what the server sent on this connection. It is never 0.
//  2. The bytes a message points to stay as they are until its Chunk is
//     released.
//  3. A frame that is cut short or garbled is an error, never a panic.
//  4. A silent server for longer than Options.LivenessTimeout, although asked
//     for a reply, is an error.
//
// Non-goals: questions to the catalogs, creating slots and publications
// (internal/catalog), what is to be confirmed (checkpoint).
package wal
