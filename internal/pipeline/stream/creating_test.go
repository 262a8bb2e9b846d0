package stream

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/role"
)

// While the slot is created, which waits for a transaction, nothing that is
// committed will come. Neither a spare nor a start after kill -9 takes the process
// that creates it for a holder.
func TestASlotThatIsBeingCreatedHasNoHolder(t *testing.T) {
	d := outbox(t)
	writer := *d
	writer.connect()
	writer.exec("SET application_name = 'a long report'; BEGIN; SELECT pg_current_xact_id()")
	first := d.run()
	first.unready("the creation of slot")
	spare := d.run()
	spare.unready("a long report")
	if got := spare.role(); got != role.Starting {
		t.Errorf("the spare's role is %s", got)
	}
	if slot := spare.status().Slot; slot != d.opts.Slot {
		t.Errorf("the spare's status names slot %q", slot)
	}
	writer.exec("COMMIT")
	first.streams()
	spare.standsBy()
	eventually(t, "the spare's readiness", spare.ready)
	d.publish(1, 1)
	spare.stop()
	d.finish(first)
}

// A spare whose configuration could not run is not ready, says why, and is ready
// once it could.
func TestASpareThatCouldNotRunIsNotReady(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil  func(*database)
		reason string
	}{
		"table":       {func(d *database) { d.opts.Tables[0].Name = "nosuch" }, "nosuch"},
		"publication": {func(d *database) { d.opts.Publication = "nosuch" }, "nosuch"},
		"column":      {func(d *database) { d.event.Payload = "nosuch" }, "nosuch"},
	} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			first := d.run().streams()
			d.publish(1, 1)
			wrong := *d
			wrong.opts.Tables = append(wrong.opts.Tables[:0:0], d.opts.Tables...)
			tt.spoil(&wrong)
			spare := wrong.run()
			spare.unready(tt.reason)
			if len(spare.health.Remedies()) == 0 {
				t.Error("without a remedy")
			}
			if name == "table" {
				d.limits.spareLook = 0
				pgtest.Exec(t, d.url, "CREATE TABLE nosuch (LIKE outbox INCLUDING ALL)", "ALTER PUBLICATION cdc_outbox ADD TABLE nosuch")
				eventually(t, "the spare's readiness", spare.ready)
			}
			spare.stop()
			d.publish(1, 1)
			first.stop()
		})
	}
}
