package stream

import (
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Failure mode 88. The column of the event type was detected, and has another
// name: events must not come without the header from then on.
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

// A column that joins the table in between is no reason to refuse rows from
// before, not even after a restart.
func TestADetectedColumnThatComesLater(t *testing.T) {
	d := outbox(t)
	d.exec(`ALTER TABLE outbox DROP COLUMN type`)
	d.opts.DrainTimeout = time.Millisecond
	i := d.run().streams()
	d.gate.hold()
	d.exec(`INSERT INTO outbox VALUES ('1', 'order', 'o', '{}')`)
	d.gate.waits(t)
	d.exec(`ALTER TABLE outbox ADD COLUMN type text DEFAULT 'Placed'`)
	d.exec(`INSERT INTO outbox VALUES ('2', 'order', 'o', '{}')`)
	d.ids = []string{"1", "2"}
	i.inFlight(2)
	eventually(t, "the column in the checkpoint", func() bool {
		owned := d.store.stored().Owned
		return len(owned) == 1 && len(owned[0].Columns) == 1
	})
	i.cancel()
	<-i.done
	d.gate.open()
	i = d.run().streams()
	d.arrive()
	d.finish(i)
}
