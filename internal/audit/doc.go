// Package audit compares the rows of an outbox with the records in Kafka, by
// event id, and by content where a caller asks, in bounded memory.
//
// Invariants:
//
//  1. An event counts as published only if a record with its id was read from a
//     committed part of a log.
//  2. An event counts as missing only if its record would have been read. Where
//     retention, compaction or a missing time may have taken the record, the
//     event is unknown.
//  3. Memory is bounded by the size of a share (see Table), never by the
//     number of rows or records; the rest is on disk.
//
// Non-goals: the moment from which a row must be in Kafka (the caller waits for
// the slot), publishing, the times and positions of records.
package audit
