package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
)

// A connector delivering each event once is killed within a large transaction,
// and a loss is accepted before the next start. The published part of the
// transaction is not published again.
func TestE2EAcceptGapWithinATransaction(t *testing.T) {
	const rows = 60_000
	w := newWorld(t, options{exactlyOnce: true, unread: true})
	c := w.start()
	w.insertSeries(rows)
	w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(1))
	c.kill()
	w.exec(`ALTER PUBLICATION `+w.slot+` DROP TABLE outbox`, `ALTER PUBLICATION `+w.slot+` ADD TABLE outbox`)
	c = startConnector(t, w.config)
	if code := c.wait(); code != 3 {
		t.Fatalf("exit code %d, want 3", code)
	}
	said := w.wantExit(0, w.config, "setup", "--accept-gap", "--yes")
	for _, want := range []string{"up to its change", "run goes on behind that"} {
		if !strings.Contains(said, want) {
			t.Errorf("setup --accept-gap does not say %q: %s", want, said)
		}
	}
	c = w.start()
	w.exec(fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ('%s', 'order', '1', 'Placed', 'last')`, eventID(1)))
	last := map[string]int{}
	all := w.broker.Consume(t, []string{topicOf("order")}, func(all []*kgo.Record) bool {
		for _, r := range all {
			if string(r.Value) == "last" {
				return len(all) > rows
			}
		}
		return false
	})
	for _, r := range all {
		last[ids([]*kgo.Record{r})[0]]++
	}
	if len(last) != rows+1 || len(all) != rows+1 {
		t.Errorf("%d records of %d events, want each of %d once", len(all), len(last), rows+1)
	}
	c.stop()
}
