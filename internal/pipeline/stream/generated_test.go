package stream

import "testing"

// Failure mode 108: PostgreSQL 18 sends a generated column if the publication says so,
// perhaps the key. The snapshot has the column, too.
func TestAGeneratedKeyThatIsSent(t *testing.T) {
	for name, publication := range map[string]string{
		"by the option": `FOR TABLE outbox WITH (publish = 'insert', publish_generated_columns = stored)`,
		"by the list":   `FOR TABLE outbox (id, aggregatetype, type, payload, aggregateid) WITH (publish = 'insert')`,
	} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			d.needs(t, 18) // for generated columns in the stream
			d.exec(`ALTER TABLE outbox DROP COLUMN aggregateid, ADD COLUMN aggregateid text GENERATED ALWAYS AS ('key-' || id) STORED`)
			d.exec(`CREATE PUBLICATION cdc_outbox ` + publication)
			d.exec(`INSERT INTO outbox (id, aggregatetype, type, payload) VALUES ('1', 'order', 'Placed', '{}')`)
			d.opts.Snapshot = true
			i := d.run().streams()
			d.exec(`INSERT INTO outbox (id, aggregatetype, type, payload) VALUES ('2', 'order', 'Placed', '{}')`)
			d.ids = []string{"1", "2"}
			d.arrive()
			d.finish(i)
			for _, r := range d.topic.all() {
				if r.key != "key-"+r.id {
					t.Errorf("event %s has the key %q", r.id, r.key)
				}
			}
		})
	}
}
