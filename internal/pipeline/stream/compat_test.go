package stream

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Debezium shows a column's DEFAULT for NULL. The stream has no defaults: run asks the
// catalogs, again after a change of the table, of rows in stream and snapshot.
func TestCompatKnowsTheDefaultsOfTheTable(t *testing.T) {
	d := outbox(t)
	d.event.Compat, d.event.Headers, d.event.Tracing = transform.CompatDebezium, transform.HeadersNone, transform.HeadersNone
	d.exec(`ALTER TABLE outbox ALTER COLUMN payload DROP NOT NULL, ALTER COLUMN payload SET DEFAULT '{"a": 1}'`)
	const insert = `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES `
	d.exec(insert + `('1', 'order', 'k', 'Placed', NULL)`)
	d.opts.Snapshot = true
	i := d.run().streams()
	d.exec(insert + `('2', 'order', 'k', 'Placed', NULL)`)
	d.ids = []string{"1", "2"}
	d.arrive()
	d.exec(`ALTER TABLE outbox ADD COLUMN more int, ALTER COLUMN payload SET DEFAULT '{"b": 2}'`)
	d.exec(insert + `('3', 'order', 'k', 'Placed', NULL)`)
	d.ids = append(d.ids, "3")
	d.arrive()
	d.finish(i)
	want := map[string]string{"1": `{"a": 1}`, "2": `{"a": 1}`, "3": `{"b": 2}`}
	for _, r := range d.topic.all() {
		if r.value != want[r.id] {
			t.Errorf("event %s has the value %s, want %s", r.id, r.value, want[r.id])
		}
	}
}
