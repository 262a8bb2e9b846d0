package exactlyonce

import "github.com/cdc-outbox/cdc-outbox/internal/pipeline/phase"

// model is a protocol, right or with a mistake, in a scenario.
type model struct {
	mistake mistake
	refused bool // brokers refuse event 2
	whole   bool // transactions of the database are not split
	halves  bool // a coordinator may forget a commit written in a part of the partitions
	repairs bool // the slot may be lost
	shared  bool // transaction.version 1: all transactions of a claim have a single epoch
	parks   bool // event 1 is bad, and parks its key, which event 3 has, too

	rules *phase.Rules // of the instances, with the mistake; search sets them
}

// mistake is an implementation's possible mistake.
type mistake int

const (
	right mistake = iota
	commitRetriedAsSuccess
	timeoutTakenForAbort
	readToLastStableOffset
	confirmedBeforeCommit
	fencingAnsweredByFencing
	refusedRecordDropped
	readBeforeClaim
	resumedAtTransactionEnd
	checkpointBesideTransaction
	partBeforeRefused
	replayWritten
	endRepeated
	tornCheckpointCounts
	visibleWrittenAgain
	doubtForgotten
	slotNotAsked
	believedUnproved
	releasedOutOfOrder
	parkedForgotten
	endedWithEvent
	laterSnapshotTrusted
	halfMadeSlotRead
	comparedBeforeClaim
)

func (m mistake) String() string {
	return [...]string{
		"right", "commit retried as success", "timeout taken for abort", "read to last stable offset",
		"confirmed before commit", "fencing answered by fencing", "refused record dropped",
		"read before claim", "resumed at transaction end", "checkpoint beside transaction", "part before refused",
		"replay written", "end repeated", "torn checkpoint counts", "visible written again", "doubt forgotten",
		"slot not asked", "believed unproved", "released out of order", "parked forgotten", "ended with its event",
		"later snapshot trusted", "half-made slot read", "compared before claim",
	}[m]
}

// memory is the phase of a mistaken instance claiming the id to go on from memory. No right
// instance is in Standby here, but Connecting until the slot is free.
const memory = phase.Standby

// mistaken are a pipeline's rules with the mistake. The rules do not change for mistakes of
// sink, checkpoint and brokers, as these are modelled here.
func (m mistake) mistaken() *phase.Rules {
	r := *phase.Protocol
	switch m {
	case commitRetriedAsSuccess:
		r.Answered[phase.Unknown] = phase.Publish
	case timeoutTakenForAbort:
		r.Answered[phase.Unknown] = phase.Claim
		r.After[memory][phase.Alone] = phase.Rule{Next: phase.Ready, Do: phase.Publish}
	case fencingAnsweredByFencing:
		r.Answered[phase.Fenced] = phase.Claim
		r.After[memory][phase.Alone] = phase.Rule{Next: phase.Ready, Do: phase.Publish}
	case readBeforeClaim:
		r.After[phase.Connecting][phase.Held] = phase.Rule{Next: phase.Claimed, Do: phase.Compare}
		r.After[phase.Claimed][phase.Same] = phase.Rule{Next: phase.Holding, Do: phase.Claim}
		r.After[phase.Holding][phase.Alone] = phase.Rule{Next: phase.Compared, Do: phase.Save}
	case believedUnproved:
		r.After[phase.Claimed][phase.Same] = phase.Rule{Next: phase.Replaying, Do: phase.Replay}
	}
	return &r
}
