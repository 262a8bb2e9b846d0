// Package phase has the life of a pipeline reading a slot: the phases, the events at
// their ends, and the steps that follow. Package stream sees the events and takes the
// steps; internal/lab/exactlyonce explores the same rules in every order of steps and
// faults.
//
// Non-goals: I/O, clocks, positions and rows.
package phase

import "slices"

// Phase is a stage of a pipeline's life. None survives a restart: a process begins with
// Connecting.
type Phase int8

// The phases, in the order of a life without trouble. /status, the metric phase, the log and
// the documents have their names.
const (
	// Connecting has no slot. Every session with PostgreSQL begins here, and every
	// failed session comes back.
	Connecting Phase = iota
	// Standby waits for the slot of another process.
	Standby
	// Holding has the slot. Earlier looks at slot and checkpoint are out of date.
	Holding
	// Claimed alone can write to Kafka: with exactly once it has the transactional id,
	// otherwise no predecessor has a lease.
	Claimed
	// Repairing publishes the events that a lost slot has left out, up to the first
	// position of the slot made anew. The checkpoint still has the loss.
	Repairing
	// Compared has found slot and checkpoint as they were before the slot was held. From
	// here on, checkpoints are saved (see Saves).
	Compared
	// Replaying has saved the first checkpoint of the epoch, and reads until the log is
	// known to be the same as before. Later events are published, and not confirmed.
	Replaying
	// Ready confirms everything published.
	Ready
	// Ended reads, writes and confirms nothing any more.
	Ended
)

var names = [...]string{"connecting", "standby", "holding", "claimed", "repairing", "compared", "replaying", "ready", "ended"}

// String returns the phase's name.
func (p Phase) String() string { return names[p] }

// Saves reports whether checkpoints are saved in the phase: slot and checkpoint were compared
// while the slot was held, and the pipeline has not ended.
func (p Phase) Saves() bool { return p == Compared || p == Replaying || p == Ready }

// Before reports whether next may follow p.
func (p Phase) Before(next Phase) bool {
	return slices.ContainsFunc(Protocol.After[p][:], func(r Rule) bool { return r.Do != None && r.Next == next })
}
