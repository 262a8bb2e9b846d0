package delivery

import (
	"time"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Last is the last event acknowledged by the brokers.
type Last struct {
	ID    string `json:"id,omitempty"` // cut off if very long; empty if secret
	Topic string `json:"topic"`
	// LSN and Seq are the position; "" and 0 for a polled event.
	LSN string `json:"lsn,omitempty"`
	Seq uint32 `json:"seq"`
	// CommittedAt is by the server's clock; nil: not known. For a row of a snapshot
	// CommittedAt is the snapshot's beginning, for a polled row the row's time.
	CommittedAt    *time.Time `json:"committed_at,omitempty"`
	AcknowledgedAt time.Time  `json:"acknowledged_at"`
}

// lastOf copies the last of at least one event for /status: the events' memory is given back
// afterwards.
func lastOf(events []*transform.Event) *Last {
	ev := events[len(events)-1]
	last := &Last{ID: ev.Name(), Topic: ev.Record.Topic, Seq: ev.Position.Seq, AcknowledgedAt: time.Now()}
	if at := ev.Position.CommitLSN; at != 0 {
		last.LSN = at.String()
	}
	if at := ev.CommitTime; !at.IsZero() {
		last.CommittedAt = &at
	}
	return last
}
