// Package quarantine parks the keys of bad events, for errors.on_bad_event: quarantine. The
// log of the quarantine is a compacted topic of a single partition: a record for each parked
// event, a record without a value once the event is settled, and a record for each command
// of an operator, replaced by its answer.
//
// Invariants:
//
//  1. A unit, a topic and a key, is parked while an event of the unit is. Parked events are
//     numbered in the order of the stream, and leave in that order.
//  2. No event is published, parked or dropped twice by the same numbers: a settled number
//     never comes back.
//  3. Only the holder of the slot parks and settles. Operators write commands.
//  4. A record of others in the topic is no event and no command.
//
// Set, Attempt and Judge are pure; Log does the reading.
//
// Non-goals: writing, which goes through the sink, so that events share the transactions of
// the checkpoint; a decision about bad events (package delivery).
package quarantine
