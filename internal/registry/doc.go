// Package registry gives records the wire format of Confluent's serializers: a zero byte,
// the number of a schema in a schema registry, and the data in the schema's form. The
// schemas come from the registry, and are kept.
//
// Invariants:
//
//  1. Encode asks nobody. Learn asks once, within a deadline, and the caller repeats.
//  2. An event is bad only for its own contents. A registry without an answer is
//     a reason to wait; so is a missing, refused or unreadable schema, unless
//     encoding.missing_schema says otherwise.
//  3. Answers are judged by status, never by text, and are bounded.
//  4. Both caches are bounded. A known schema is good without the registry's answer, and looked for
//     again every encoding.registry.refresh: a restored registry gives numbers anew.
//
// Formats: package avro, Protobuf by protocompile and protojson, JSON Schema by jsonschema.
//
// Non-goals: reading such records, waiting (the sink's task), schemas made from payloads.
package registry
