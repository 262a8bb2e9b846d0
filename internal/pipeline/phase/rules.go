package phase

// Event is an event seen by a pipeline.
type Event int8

// The events of a life, in the order of a life without trouble.
const (
	// Busy: another process reads the slot.
	Busy Event = iota
	// Held: this process has the slot.
	Held
	// Alone: no other process can write to Kafka.
	Alone
	// Same: with the slot held, slot and checkpoint are as they were before.
	Same
	// Lacking: as Same, and the slot was made anew after a loss.
	Lacking
	// Repaired: everything before the slot's first position is published.
	Repaired
	// Passed: another process, or an operator, used the slot in between.
	Passed
	// Saved: the first checkpoint of the epoch is.
	Saved
	// Recognised: the log is the one read before.
	Recognised
	// Lost: the session with PostgreSQL has ended.
	Lost
	// Stopped: the pipeline has ended, for whatever reason.
	Stopped
	events
)

// Answer is the known outcome of a Kafka transaction.
type Answer int8

// The answers.
const (
	Committed Answer = iota
	// Unknown: the transaction may have been committed.
	Unknown
	// Fenced: another process has the transactional id.
	Fenced
	// Failed: a permanent error.
	Failed
	answers
)

// Step is the next step of a pipeline.
type Step int8

// The steps.
const (
	None Step = iota
	// Take the slot, with a new session.
	Take
	// Wait until the slot is free.
	Wait
	// Claim the transactional id, or wait until no predecessor has a lease.
	Claim
	// Compare slot and checkpoint with those seen before the slot was held.
	Compare
	// Repair: compare the rows with Kafka, and publish the missing ones.
	Repair
	// Save the first checkpoint of an epoch.
	Save
	// Replay: read the log until recognised. New rows are published, not
	// confirmed.
	Replay
	// Publish, and confirm everything known to be published.
	Publish
	// BeginAnew: drop everything in flight, and end. A new pipeline stands by.
	BeginAnew
	// End the pipeline.
	End
)

// Rule is the answer to an event: the next phase, and its first step.
type Rule struct {
	Next Phase
	Do   Step
}

// Rules are a table, so the model can plant a mistake in a copy.
type Rules struct {
	// After has the rules of an event, by phase. An event without a rule is a bug.
	After [Ended + 1][events]Rule
	// Answered has the rules of an answer of Kafka, in any phase: everything read
	// is delivered while the session is away.
	Answered [answers]Step
}

// Protocol are the rules of a pipeline.
var Protocol = protocol()

func protocol() *Rules {
	r := Rules{
		After: [Ended + 1][events]Rule{
			Connecting: {Busy: {Standby, Wait}, Held: {Holding, Claim}},
			Standby:    {Busy: {Standby, Wait}, Held: {Holding, Claim}},
			// Not before the claim: until then a former holder can commit a checkpoint.
			Holding: {Alone: {Claimed, Compare}},
			Claimed: {Same: {Compared, Save}, Lacking: {Repairing, Repair}, Passed: {Connecting, Take}},
			// Until the save, a start finds the loss in the checkpoint, and begins the
			// repair with another slot: nobody has this slot's first snapshot any more.
			Repairing: {Repaired: {Compared, Save}},
			// Everything compared counts once this save has succeeded: it proves that no
			// other process has the transactional id.
			Compared:  {Saved: {Replaying, Replay}},
			Replaying: {Recognised: {Ready, Publish}},
		},
		// An unknown end is no commit, and no abort. To claim the id again without
		// the slot would fence off the holder.
		Answered: [...]Step{Committed: Publish, Unknown: BeginAnew, Fenced: BeginAnew, Failed: End},
	}
	for p := Connecting; p < Ended; p++ {
		r.After[p][Lost] = Rule{Connecting, Take}
		r.After[p][Stopped] = Rule{Ended, End}
	}
	return &r
}

// Overtaken reports whether another process has read the slot since this one did, by the
// epochs of this process's checkpoints, 0 before the first, and of the checkpoint found. Then
// the pipeline begins anew.
func Overtaken(own, found int64) bool { return own != 0 && found > own }
