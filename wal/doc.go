// Package wal speaks the replication protocol: it takes over a connection,
// reads the walsender's stream of a slot, decodes pgoutput, puts rows and
// logical messages in order, and reports back the confirmed position.
//
// The way of a byte: socket → pace (rests after small reads) → frame (cuts
// copy data) → decode (pgoutput) → order (rows and messages) →
// Stream.Next. Beside, a goroutine sends the standby status on a timer, so a
// slow reader keeps the connection.
//
// Invariants:
//
//  1. A position is confirmed only after a call of Confirm with it, never
//     beyond what the server sent on this connection, and never 0.
//  2. A message's bytes stay unchanged until its Chunk is released.
//  3. A frame cut short or garbled is an error, never a panic.
//  4. A server silent for longer than Options.LivenessTimeout, although asked
//     for a reply, is an error.
//
// Non-goals: questions to the catalogs, creating slots and publications
// (internal/catalog), what is to be confirmed (checkpoint).
//
// Signatures here have internal types and may change with any release; package
// connector is for other programs.
package wal
