// Package store keeps a checkpoint: in a compacted Kafka topic, a PostgreSQL table
// or a file.
//
// Invariants:
//
//  1. A store returns the last checkpoint saved under its key, none where none
//     was saved, or an error. An unreadable checkpoint is an error, never none.
//  2. A save of a former holder of the slot, or a late one, does not set the
//     checkpoint back; see checkpoint.Checkpoint.Epoch.
//  3. Each load and save ends with its context.
//
// Non-goals: when to save, the meaning of a checkpoint (checkpoint).
//
// Signatures here have internal types and may change with any release; package
// connector is for other programs.
package store
