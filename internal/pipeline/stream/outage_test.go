package stream

import (
	"fmt"
	"regexp"
	"testing"
	"time"

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
	lines := i.logs.FilterMessage("PostgreSQL session ended, will reconnect").FilterLevelExact(zap.WarnLevel)
	if lines.FilterFieldKey("remedy").Len() == 0 { // the first is the broken stream's
		t.Errorf("no line tells that nobody listens: %v", i.logs.All())
	}
	const soon = 30 * time.Second // between two lines about a cause; a server may end in several ways
	told := make(map[string]time.Time)
	for _, line := range lines.All() {
		cause := digits.ReplaceAllString(fmt.Sprint(line.ContextMap()["error"]), "")
		if before, again := told[cause]; again && line.Time.Sub(before) < soon {
			t.Errorf("%q is told again after %s: %v", cause, line.Time.Sub(before), i.logs.All())
		}
		told[cause] = line.Time
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

var digits = regexp.MustCompile(`[0-9]+`)
