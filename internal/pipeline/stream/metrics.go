package stream

import (
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/retention"
)

// Metrics is told what happens; package internal/metrics implements it. Its
// methods are called from several goroutines and must not block.
type Metrics interface {
	retention.Observer
	delivery.Metrics
	// Ignored counts changes of outbox rows that are no inserts, by operation:
	// update, delete or truncate.
	Ignored(operation string)
	// Reconnected counts new connections after a broken one; side is postgres
	// or kafka.
	Reconnected(side string)
	// Transaction counts a transaction that was read to its end and has events.
	Transaction()
	// Snapshot is told when the publication of the tables' rows begins and ends,
	// SnapshotRow of each row.
	Snapshot(running bool)
	SnapshotRow()
	// Capacity is told how many bytes may be in flight at most.
	Capacity(bytes int64)
	// Connected is told whether a side, postgres or kafka, can be reached.
	Connected(side string, ok bool)
	// Role is told of a change of role: starting, standby, active or stopping.
	Role(role string)
	// CheckpointSaved is told of every attempt.
	CheckpointSaved(err error)
	// TopicsMissing is told how many topics delivery waits for.
	TopicsMissing(n int)
	// Slot is told what the server says of the slot, its flush position, and
	// how long ago the oldest event in flight was committed.
	Slot(slot catalog.Slot, flush pg.LSN, lag time.Duration)
	// Observe hands over what is read when metrics are collected.
	Observe(received, confirmed func() pg.LSN, inFlightEvents, inFlightBytes func() int64)
	// ObserveUnconfirmed does the same for how long the server has had log that
	// is not confirmed.
	ObserveUnconfirmed(func() time.Duration)
	// ObserveCheckpoint does the same for the age of the oldest acknowledged
	// position that is not saved; 0 if all are.
	ObserveCheckpoint(age func() time.Duration)
}
