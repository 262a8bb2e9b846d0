package stream

import (
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
	"github.com/cdc-outbox/cdc-outbox/internal/retention"
)

// Metrics is told what happens; package internal/metrics implements it. Its
// methods are called from several goroutines and must not block.
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

// intakeMetrics is told what is read.
type intakeMetrics interface {
	// Ignored counts changes of outbox rows that are no inserts, by operation:
	// update, delete or truncate.
	Ignored(operation string)
	// Transaction counts a transaction that was read to its end and has events.
	Transaction()
	// Split counts a transaction that is published in parts, as it is larger
	// than MaxBufferedBytes.
	Split()
	// Snapshot is told when the publication of the tables' rows begins and ends,
	// SnapshotRow of each row.
	Snapshot(running bool)
	SnapshotRow()
}

// slotMetrics is told what the server says of the slot.
type slotMetrics interface {
	// Slot is told of a look at it: its flush position, and how long ago the
	// oldest event in flight was committed.
	Slot(slot catalog.Slot, flush pg.LSN, lag time.Duration)
	// SlotUnknown is told that what Slot was told holds no more.
	SlotUnknown()
	// Failover is told how failovers would find the slot; nil while that is not
	// known.
	Failover([]catalog.Candidate)
	// ObserveUnconfirmed hands over what is read when metrics are collected:
	// for how long the server has had something that is not confirmed.
	ObserveUnconfirmed(func() time.Duration)
	// ObserveStandstill hands over how many sessions in a row have failed at
	// one position.
	ObserveStandstill(failures func() int)
}

// checkpointMetrics is told of checkpoints.
type checkpointMetrics interface {
	// CheckpointSaved is told of every attempt.
	CheckpointSaved(err error)
	// ObserveCheckpoint hands over the age of the oldest acknowledged position
	// that is not saved; 0 if all are.
	ObserveCheckpoint(age func() time.Duration)
}
