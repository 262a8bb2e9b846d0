// Package transform is the outbox event router: an inserted outbox row becomes
// a Kafka record, as Debezium's Outbox Event Router does. It is pure: no I/O,
// no clock, no goroutine, no log.
//
// Invariants:
//
//  1. The same row with the same options gives the same record, byte for byte:
//     a replay is recognisable. No part of a record is random or current.
//  2. Every row gives exactly one Event. A row that cannot become a record
//     gives its Event, as far as it could be built, and a BadEvent with the
//     reason; nothing is dropped and nothing panics.
//  3. Bytes of a row are referenced, never written: a record shares them with
//     the row wherever the form is the column's form.
//  4. A fault an operator has to mend (options, missing columns) is an error of
//     class failure.Config, found by New or Bind and never by a value.
//
// The way of a row: Bind compiles a plan for the table once (plan.go), Route
// follows it (route.go) with the parts of the record each in their file: topic,
// value, headers, timestamp. Parts take column values, not rows, so a source
// without columns, such as logical messages, can use them too.
//
// Where the result differs from Debezium's on purpose:
//
//   - eventType, cdc-lsn, cdc-seq, cdc-xid, cdc-time are headers by default; a column
//     placed under one of the built-in names takes the built-in one's place. A
//     table without an event type has no eventType, unless event.type names one.
//   - event.record_time: commit makes the commit time the timestamp. By default
//     it is the publication's, as there, and the commit time is a header.
//   - A NULL or empty key, and text that starts like JSON but is not under
//     json_expanded, are bad events unless event.null_key and event.invalid_json
//     say publish.
//   - Expansion keeps numbers and string escapes as they are written, does not
//     pad the objects of an array with each other's members, and expands a
//     top-level array, which Debezium cannot publish.
//   - A traceparent is passed on as it is, or names the event's span (Spans).
//   - A row that moves to another partition is no new event (Moves).
//   - A JSON column named headers becomes headers, one for each member.
//   - event.cloudevents makes CloudEvents of the records.
//
// Non-goals: choosing partitions by key (the sink's partitioner does), checking
// that topics exist, events of operations other than INSERT, schemas and Avro
// (internal/registry).
//
// Signatures here have internal types and may change with any release; package
// connector is for other programs.
package transform
