// Package exactlyonce has no code of its own. The tests are a model of the
// protocol by which a pipeline writes each event once into Kafka, explored
// exhaustively in a small world: two instances, three events, and every order
// in which steps and faults can happen. docs/internals/protocol.md has the
// protocol's states and the numbered invariants.
//
// The instances follow the rules of package phase, the product's own, and ask
// package checkpoint which checkpoint the slot makes count. Sink, brokers and
// PostgreSQL are a model.
//
// The model is proved in turn: each of the mistakes the protocol avoids is
// planted, in those rules or in the model, and the search must find what it
// does (see mistake).
//
// Non-goals: what a real broker does. The tests of package sink and the campaign
// show that. And what an instance has read of the log and not written yet: here it
// reads when it writes.
package exactlyonce
