// Package fleet places the pipelines of a configuration on its processes, by a group of Kafka's.
//
// A process is a member of the group. The group is of Kafka's classic protocol, with a type of
// its own, as the groups of Kafka Connect and of schema registries are: members describe
// themselves when they join, and the member chosen as leader by the coordinator answers with a
// decision of package placement. So a fleet needs no topic, and each broker since Kafka 2.3
// will do. With the newer protocol (KIP-848), brokers decide, by partitions of topics, and know
// nothing of pipelines.
//
// Unlike consumers, members give up nothing to join again: a rebalance stops no pipeline. A
// pipeline moves by two of them. In the first, its member is told to let go. The member drains,
// while it stays in the group, and joins again once the slot is free. In the second, the next
// member gets the pipeline.
//
// Invariants:
//
//  1. A member whose session the coordinator has not renewed for the session timeout stops all
//     pipelines: by then others may have them. The time counts from when the last question with
//     such an answer was sent, so the member stops first.
//  2. A member names a pipeline as held until the pipeline has drained, saved its position
//     and closed its connection.
//  3. The slot stays the lock: a wrong placement makes a spare, never a second reader.
//  4. A single goroutine, Run's, owns the state of a Membership, starts a goroutine for
//     each question, and joins all.
//
// Non-goals: running pipelines (internal/pipeline), the decision (placement).
package fleet
