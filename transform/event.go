package transform

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/wal"
)

// PartitionByKey in Event.Record.Partition leaves the choice of partition to
// the sink's partitioner.
const PartitionByKey int32 = -1

// Event is an outbox row on its way to Kafka: the record, and where the row
// came from. It is written by Router.Route and read-only afterwards, except
// for the fields that franz-go sets on the record when it is produced.
type Event struct {
	Record     kgo.Record
	Table      string // schema.table
	ID         []byte // the event id column's text; nil for NULL
	Position   wal.Position
	XID        uint32
	CommitTime time.Time
}

// Size is the number of bytes that the event counts against a byte bound: key,
// value and headers.
func (e *Event) Size() int64 {
	n := len(e.Record.Key) + len(e.Record.Value)
	for _, h := range e.Record.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return int64(n)
}
