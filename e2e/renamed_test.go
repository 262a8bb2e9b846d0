package e2e

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
)

// Failure mode 75: a table filled under another name takes the outbox's while
// the connector is stopped, as a migration does.
func TestE2EATableThatTakesTheOutboxsName(t *testing.T) {
	w := newWorld(t, options{direct: true, unread: true})
	w.exec(`CREATE PUBLICATION ` + w.slot + ` FOR ALL TABLES`)
	c := w.start()
	w.insertID(1, "aggregateid")
	w.insertID(2, "aggregateid")
	w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(2))
	c.stop()
	w.exec(`CREATE TABLE staged (LIKE outbox INCLUDING ALL)`, `INSERT INTO staged SELECT * FROM outbox`,
		`ALTER TABLE outbox RENAME TO outbox_old`, `ALTER TABLE staged RENAME TO outbox`)
	w.insertID(3, "aggregateid")
	c = w.start()
	got := w.idsUpTo(3)
	c.stop()
	if want := []string{eventID(1), eventID(2), eventID(3)}; !slices.Equal(got, want) {
		t.Errorf("came again: the topic has %v, want %v", got, want)
	}
}

// idsUpTo are the ids of the topic up to the event, the last.
func (w *world) idsUpTo(n int) []string {
	w.t.Helper()
	last := func(records []*kgo.Record) bool { return slices.Contains(ids(records), eventID(n)) }
	return ids(w.broker.Consume(w.t, []string{topicOf("order")}, last))
}
