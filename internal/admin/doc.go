// Package admin has the verbs an operator types beside a running connector:
// setup, teardown, check, status and tail. Each takes the configuration, looks,
// does its work, and returns a typed report that prints itself for people and
// marshals to JSON for scripts.
//
// Invariants:
//
//  1. check, status and tail change nothing outliving them; tail's slot is
//     temporary.
//  2. setup creates only what is missing. A slot that a checkpoint remembers is
//     never created anew unless the operator accepts the gap by name.
//  3. Objects in use are not dropped; a refusal names the holder.
//  4. A report says what was found even if the rest could not be asked, and
//     every failure carries the statement, setting or command that fixes it.
//
// Non-goals: running the connector, watching over time, changing the settings
// of PostgreSQL or Kafka.
package admin
