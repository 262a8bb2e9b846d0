package stream

import (
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
	"github.com/cdc-outbox/cdc-outbox/internal/retention"
)

// Metrics is told of events in the pipeline; package internal/metrics implements it.
// The methods are called from several goroutines and must not block.
type Metrics interface {
	retention.Observer
	delivery.Metrics
	session.Metrics
	intakeMetrics
	slotMetrics
	checkpointMetrics
	// Phase is called at each change of the pipeline's phase.
	Phase(from, to string)
}

// intakeMetrics is told of the stream's content.
type intakeMetrics interface {
	// Ignored counts changes of outbox rows other than inserts, by operation:
	// update, delete or truncate.
	Ignored(operation string)
	// Transaction counts a transaction with events, read to its end.
	Transaction()
	// Split counts a transaction published in parts, as larger than
	// MaxBufferedBytes.
	Split()
	// Snapshot is told when the publication of the tables' rows begins and ends,
	// SnapshotRow of each row.
	Snapshot(running bool)
	SnapshotRow()
}

// slotMetrics is told of the slot on the server.
type slotMetrics interface {
	// Slot is told of a look at the slot: the end of the server's log, and how
	// long ago the oldest event in flight was committed.
	Slot(slot catalog.Slot, flush pg.LSN, lag time.Duration)
	// SlotUnknown is told that Slot's last values hold no more.
	SlotUnknown()
	// Failover is told how failovers would find the slot; nil: not known.
	Failover([]catalog.Candidate)
	// ObserveUnconfirmed hands over a function for the collection of metrics: how
	// long the server has had unconfirmed log.
	ObserveUnconfirmed(func() time.Duration)
	// ObserveInvisible hands over how long an event has waited until its row can be
	// read; 0 while none does.
	ObserveInvisible(func() time.Duration)
	// ObserveStandstill hands over how many sessions in a row have failed at the
	// same position.
	ObserveStandstill(failures func() int)
}

// checkpointMetrics is told of checkpoints.
type checkpointMetrics interface {
	// CheckpointSaved is told of every attempt.
	CheckpointSaved(err error)
	// ObserveCheckpoint hands over the age of the oldest acknowledged position not
	// saved; 0 if all are.
	ObserveCheckpoint(age func() time.Duration)
	// ObserveRepair hands over what a repair has still to do: records to be read, and
	// events to be published; 0 without a repair.
	ObserveRepair(ahead func() (records, events int64))
	// ObserveGap hands over how long ago a gap was accepted whose events may be missing;
	// 0: there is none.
	ObserveGap(age func() time.Duration)
	// ObserveSnapshot hands over how many of a snapshot's rows are published; 0 without
	// a snapshot.
	ObserveSnapshot(progress func() (published, rows int64))
}
