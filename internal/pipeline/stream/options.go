package stream

import (
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/retention"
)

// Options are the configuration of a Pipeline.
type Options struct {
	// URL is the source's connection string.
	URL string
	// Standbys are hosts, beside those of URL, that a failover may go to.
	Standbys []string
	// Tables may be empty with Messages.
	Tables            []pg.Table
	Slot, Publication string
	// Create makes the first start create everything missing of slot and
	// publication.
	Create bool
	// Failover makes an existing slot a failover slot, too.
	Failover bool
	// Messages makes logical messages with Prefix events, too.
	Messages bool
	Prefix   string
	// Siblings are slots of the same configuration, read on purpose.
	Siblings []string
	// Repairable: errors.on_loss may be repair, and is not.
	Repairable bool
	// Fleet: the pipeline is a fleet's.
	Fleet bool
	// Snapshot publishes the rows present at the creation of the slot.
	Snapshot bool
	// See wal.Options.
	StatusInterval, LivenessTimeout time.Duration
	// OnUpdate and OnBadEvent are among the values in package transform.
	OnUpdate, OnBadEvent string
	// DrainTimeout bounds how long a stop waits for records in flight.
	DrainTimeout time.Duration
	// MaxBufferedBytes bounds the memory of the events in flight. Linger is the
	// least time between two batches not full.
	MaxBufferedBytes int64
	Linger           time.Duration
	// Takes tells of values that are kept outside of Kafka, by size; nil: there are none.
	Takes      func(bytes int) bool
	Boundaries Boundaries
	Checkpoint store.Options // with its Key
	Retention  retention.Options
	IntoKafka  bool // go the events
	// Visible holds events back until new transactions on the primary see their rows.
	Visible bool
}
