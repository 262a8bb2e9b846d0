// Package placement places the pipelines of a fleet on its members, without I/O, clock or
// goroutine.
//
// The members tell their offers (the pipelines of their files) and their holds (the pipelines
// started and not stopped yet). Decide answers with the pipelines for each member. A member
// never takes a pipeline while another still holds it: the holder first has to let go, and a
// later decision, after the holder has said so, gives the pipeline to the next member.
//
// A pipeline without any offer ends.
//
// Invariants:
//
//  1. A pipeline is in the list of at most one member.
//  2. A pipeline without a holder is in a list if any member can run the pipeline.
//  3. Pipelines without a holder are placed at once; of the others, no more than the limit are in
//     motion at a time.
//  4. A member gets a pipeline only with its newest specification, the specification loaded last
//     by any member. A holder keeps an older specification until its turn comes.
//  5. The decision depends on the arguments alone, not on their order: any member could decide.
//
// The replication slot is the lock, not the placement: two members with the same pipeline, after
// a partition of the network, are a member at work and a spare.
//
// Non-goals: membership, the transport of offers and decisions (package fleet).
package placement
