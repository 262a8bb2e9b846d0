package delivery

import (
	"time"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Last is the last event the brokers acknowledged.
type Last struct {
	ID    string `json:"id,omitempty"` // cut off where it is very long; none where nobody may see it
	Topic string `json:"topic"`
	// LSN and Seq are its position; "" and 0 where it was polled.
	LSN string `json:"lsn,omitempty"`
	Seq uint32 `json:"seq"`
	// CommittedAt is by the server's clock; nil where not known. For a row of a
	// snapshot it is when that began, for a polled row what the row says.
	CommittedAt    *time.Time `json:"committed_at,omitempty"`
	AcknowledgedAt time.Time  `json:"acknowledged_at"`
}

// lastOf copies what is shown of the last event. There is at least one event.
// It is a copy because the events' memory is given back after this.
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
