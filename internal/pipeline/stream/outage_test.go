package stream

import (
	"testing"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// During an outage of the server, the log has a line for each cause, and not for each
// attempt; the end is a line, too, with attempts and duration.
func TestE2EOutageIsAFewLines(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	d := newDatabase(t, server.NewDatabase(t))
	i := d.run().streams()
	server.Stop(t, pgtest.Immediate)
	eventually(t, "many attempts", func() bool { return i.metrics.reconnected() >= 6 })
	refused := i.logs.FilterMessage("PostgreSQL session ended, will reconnect").FilterLevelExact(zap.WarnLevel).
		FilterFieldKey("remedy").Len() // the first is the broken stream's
	if refused != 1 {
		t.Errorf("%d lines tell that nobody listens, want 1: %v", refused, i.logs.All())
	}
	server.Resume(t)
	i.streams()
	d.connect()
	back := i.logs.FilterMessage("the session with PostgreSQL works again").All()
	if len(back) != 1 || back[0].ContextMap()["failed_attempts"].(int64) < 6 {
		t.Errorf("the end is told by %v", back)
	}
	d.publish(1, 1)
	d.finish(i)
}
