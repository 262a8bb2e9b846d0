// Package claimcheck keeps large values outside of Kafka, in storage with Amazon's S3 protocol
// or in a table of PostgreSQL. Records then have a reference: see transform.Claim.
//
// Invariants:
//
//  1. Put returns nil once the value is durable in the store. No record refers to the value before.
//  2. The name of a value is made of the event's id and of the value's hash. So a repetition
//     writes the same value to the same place, also from another instance, and no value is
//     written over another.
//  3. Each question has a deadline, and a question that fails is asked again by the caller only.
//
// A value without a record, left by a crash or by an aborted transaction, goes with the store's
// retention. A record published again has its value renewed, with the time of a new one. Non-goals: retries, memory (the sink's), deletion from S3 (a rule of the bucket).
package claimcheck
