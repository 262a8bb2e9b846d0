package page

import (
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// events is a single event committed so long ago.
func events(t testing.TB, ago time.Duration) []*transform.Event {
	t.Helper()
	ev := &transform.Event{CommitTime: time.Now().Add(-ago)}
	ev.Record.Topic = "orders"
	return []*transform.Event{ev}
}
