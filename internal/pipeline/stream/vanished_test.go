package stream

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Failure mode 78. The column of the event type was detected, and is renamed: events must
// not come without the header from then on.
func TestADetectedColumnThatIsGoneIsAMissingColumn(t *testing.T) {
	for _, when := range []string{"while running", "while stopped"} {
		t.Run(when, func(t *testing.T) {
			d := outbox(t)
			i := d.run().streams()
			d.publish(2, 1)
			if when == "while stopped" {
				i.stop()
			}
			d.exec(`ALTER TABLE outbox RENAME type TO kind`)
			d.insert(1, 1)
			if when == "while stopped" {
				i = d.run()
			}
			const gone = `bad event 3 of public.outbox at .*: missing_column: event.type: .* "type"`
			i.wantEnd(failure.Config, gone)
			d.run().wantEnd(failure.Config, gone)
			d.event.Type = "kind" // the remedy
			i = d.run().streams()
			d.arrive()
			d.finish(i)
		})
	}
}

// A new column is no reason to refuse earlier rows, not even after a restart.
func TestADetectedColumnThatComesLater(t *testing.T) {
	d := outbox(t)
	d.exec(`ALTER TABLE outbox DROP COLUMN type`)
	d.run().streams().stop()
	d.exec(`INSERT INTO outbox VALUES ('1', 'order', 'o', '{}')`)
	before := d.lsn("SELECT pg_current_wal_flush_lsn()")
	d.exec(`ALTER TABLE outbox ADD COLUMN type text DEFAULT 'Placed'`)
	d.exec(`INSERT INTO outbox VALUES ('2', 'order', 'o', '{}')`)
	d.ids = []string{"1", "2"}
	read := d.store.stored() // as after both were read, and none acked
	read.Owned = read.Owned.Bound(read.Owned[0].OID, []string{"type"}, before)
	d.store.cp = &read
	i := d.run().streams()
	d.arrive()
	d.exec(`ALTER TABLE outbox DROP COLUMN type; INSERT INTO outbox VALUES ('3', 'order', 'o', '{}')`)
	i.wantEnd(failure.Config, `bad event 3 of .*missing_column: event.type: .* "type"`)
	d.wantOnce()
}
