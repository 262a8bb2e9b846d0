// Package admin has the verbs an operator types beside a running connector:
// setup, teardown, check, status and tail. Each takes the configuration, looks,
// does its work, and returns a typed report that prints itself for people and
// marshals to JSON for scripts.
//
// Invariants:
//
//  1. check, status and tail change nothing outliving them; tail's slot is
//     temporary.
//  2. setup creates only missing objects. A slot remembered by a checkpoint is
//     never created anew unless the operator accepts the gap by name.
//  3. Objects in use are not dropped; a refusal names the holder.
//  4. A report has all findings even if a later question failed, and every
//     failure carries the statement, setting or command for its repair.
//
// Non-goals: running the connector, watching over time, changing the settings
// of PostgreSQL or Kafka.
package admin
