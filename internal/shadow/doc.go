// Package shadow compares the records that a connector would write with those that
// Debezium writes, from the same log, while both go on.
//
// Invariants:
//
//  1. An event is missing there only after Debezium's slot has confirmed its commit, and
//     the topics were read to the ends that they had after the confirmation.
//  2. A record is additional there only after our reader has passed the end that the log
//     had after the record was written.
//  3. A repetition is no difference: an event stays known until Debezium has confirmed
//     its commit, for then the server never sends it again.
//  4. Memory is bounded: beyond the limit of a side, the side is not to be read on. If
//     both sides are full, events confirmed by Debezium are given up, unjudged.
//
// Non-goals: reading, waiting, clocks (internal/admin).
package shadow
