// Package exactlyonce consists of tests: a model of the protocol by which a pipeline
// writes each event once into Kafka, explored exhaustively in a small world of two
// instances and three events, in every possible order of steps and faults.
// docs/internals/protocol.md has the protocol's states and the numbered invariants.
//
// The instances follow the rules of package phase, the product's own, and ask
// package checkpoint for the checkpoint confirmed by the slot. Sink, brokers and
// PostgreSQL are a model.
//
// The model is proved in turn: each mistake avoided by the protocol is planted, in
// the rules or in the model, and the search must find the consequence (see mistake).
//
// Non-goals: real brokers, as the tests of package sink and the campaign have them;
// events read from the log and not written yet, as instances here read when they
// write.
package exactlyonce
