package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Doubtful is a Kafka transaction with events and a checkpoint: brokers aborted it, though
// some partitions may have committed it, as when a coordinator is lost at a bad moment; see
// docs/internals/RELIABILITY.md. The checkpoint does not count. The events are written
// again, unless consumers see them already.
type Doubtful struct {
	Saved Checkpoint // the transaction's checkpoint
	// Producer and Epoch are the records', Aborted is the epoch of the marker that
	// aborted them.
	Producer       int64
	Epoch, Aborted int16
	// Committed reports that the checkpoint's own partition committed the
	// transaction before.
	Committed bool
	Written   Written // nil: not known
}

// Confirmed returns the valid checkpoint of a slot confirmed up to the position. A
// confirmed transaction was known to be committed. With transaction.version 1 a checkpoint
// committed as a whole may look doubtful, if the next transaction was aborted.
func (c Checkpoint) Confirmed(slot pg.LSN) Checkpoint {
	for _, d := range c.Doubtful {
		if d.Committed && d.Saved.LSN > c.LSN && d.Saved.LSN <= slot {
			all, ends, settled := c.Doubtful, c.Ends, c.Settled
			c = d.Saved
			c.Ends = ends
			c.Settled = append(slices.Clip(c.Settled), settled...) // both transactions count
			c.Doubtful = within(c, append(slices.Clip(c.Doubtful), all...))
		}
	}
	return c
}

// Written is a transaction's content besides the checkpoint, by topic and
// partition.
type Written map[string]map[int32]Part

// Part is a transaction's content in a partition.
type Part struct {
	Records int `json:"n"`
	// From is an offset before the part, behind everything committed there
	// under the same claim of the transactional id.
	From int64 `json:"from,omitempty"`
}

// WrittenHeader is the header with Written of a checkpoint's record.
const WrittenHeader = "cdc-written"

// Count adds a record.
func (w Written) Count(topic string, partition int32) {
	parts := w[topic]
	if parts == nil {
		parts = make(map[int32]Part)
		w[topic] = parts
	}
	parts[partition] = Part{Records: parts[partition].Records + 1}
}

// Header is the value of WrittenHeader.
func (w Written) Header() ([]byte, error) { return json.Marshal(w) }

// ParseWritten reads Header's value.
func ParseWritten(header []byte) (w Written, err error) {
	if err = json.Unmarshal(header, &w); err != nil {
		return nil, fmt.Errorf("header %s: %w", WrittenHeader, err)
	}
	return w, nil
}

// within returns the transactions not passed by c. A transaction with parked events is not
// passed by any position: see Resolved.
func within(c Checkpoint, doubtful []Doubtful) []Doubtful {
	return without(doubtful, func(d Doubtful) bool {
		s := &d.Saved
		if c.Snapshot && s.Initial.beyond(c.Initial) {
			return false
		}
		return len(s.Settled) == 0 && s.LSN <= c.LSN && (s.Cut.IsZero() || s.Cut.Commit < c.LSN || !s.Cut.beyond(c.Cut))
	})
}

// Resolved returns c without the doubtful transactions whose parked events are all settled
// since. parked reports whether an event is parked.
func (c Checkpoint) Resolved(parked func(number uint64) bool) Checkpoint {
	c.Doubtful = without(c.Doubtful, func(d Doubtful) bool {
		return len(d.Saved.Settled) > 0 && !slices.ContainsFunc(d.Saved.Settled, parked)
	})
	return c
}

// without returns the transactions not over.
func without(doubtful []Doubtful, over func(Doubtful) bool) []Doubtful {
	if !slices.ContainsFunc(doubtful, over) {
		return doubtful // the caller's, and shared: not to be changed
	}
	var left []Doubtful
	for _, d := range doubtful {
		if !over(d) {
			left = append(left, d)
		}
	}
	return left
}
