package stream

import (
	"slices"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
)

// What Debezium counts, too: rows of the snapshot, transactions with events (and
// none without), and the last event.
func TestLastTransactionsAndSnapshotShow(t *testing.T) {
	d := outbox(t)
	d.opts.Snapshot = true
	d.insert(3, 3)
	i := d.run().streams()
	d.arrive()
	d.exec("CREATE TABLE other (v int); INSERT INTO other VALUES (1)")
	d.publish(4, 2)
	var last *delivery.Last
	eventually(t, "the last event", func() bool {
		last = i.status().LastEvent
		return last != nil && last.ID == "7"
	})
	if last.Seq != 1 || last.LSN != d.topic.all()[6].position.CommitLSN.String() || last.CommittedAt == nil || last.AcknowledgedAt.IsZero() {
		t.Errorf("the last event is %+v", last)
	}
	i.stop()
	if m := i.metrics; m.transactions != 2 || m.rows != 3 || !slices.Equal(m.snapshots, []bool{true, false}) {
		t.Errorf("%d transactions, %d rows of snapshots, %v", m.transactions, m.rows, m.snapshots)
	}
}
