package poll_test

import (
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestThroughAPooler puts PgBouncer in transaction mode between: each transaction has
// another session, and notifications do not arrive.
func TestThroughAPooler(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex)
	w.parts.URL = pgtest.Pooled(t, w.parts.URL, 2)
	w.parts.MaxInterval = 20 * time.Millisecond
	w.parts.BatchSize = 20
	instances := []*instance{w.start(nil), w.start(nil), w.start(nil)}
	w.series(0, 1000, 5)
	w.published(1000)
	for _, in := range instances {
		if in.status().Notifications {
			t.Error("notifications are said to arrive")
		}
		if err := in.stop(); err != nil {
			t.Error(err)
		}
	}
	w.wantInOrder(5, 1000)
}
