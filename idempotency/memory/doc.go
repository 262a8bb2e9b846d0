// Package memory keeps idempotency keys in the process: Store alone, where a
// duplicate after a restart is acceptable, and Layered with its Window in front
// of another store, to spare the store the duplicates' writes.
//
// Invariants:
//
//  1. A Store never evicts a record with a live lease.
//  2. A Bloom filter's hit is never taken for a duplicate: a false answer would
//     lose the message.
//  3. A Layered store skips a message on its own memory only with
//     LayerOptions.Trust, and then only if this process completed the key.
//
// Non-goals: durability, sharing between processes.
package memory
