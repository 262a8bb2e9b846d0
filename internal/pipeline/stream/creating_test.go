package stream

import (
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
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

// A spare whose configuration could not run ends as run does, and is not ready before.
func TestASpareThatCouldNotRunEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil  func(*database)
		reason string
	}{
		"table":       {func(d *database) { d.opts.Tables[0].Name = "nosuch" }, "nosuch"},
		"publication": {func(d *database) { d.opts.Publication = "cdc_outbx" }, "cdc_outbx"},
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
			eventually(t, "the end of the spare", func() bool {
				if spare.ready() {
					t.Fatal("the spare is ready")
				}
				return spare.ended()
			})
			spare.wantEnd(failure.Config, tt.reason)
			d.publish(1, 1)
			first.stop()
		})
	}
}

// A spare that could take over, and cannot since somebody changed the catalogs, has time
// until that is mended.
func TestASpareWhoseTablesChange(t *testing.T) {
	for name, lasts := range map[string]bool{"mended": false, "for good": true} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			d.limits.spareLook, d.limits.unfit = 0, patience
			first := d.run().streams()
			d.publish(1, 1)
			if lasts {
				d.limits.unfit = 50 * time.Millisecond
			}
			spare := d.run()
			eventually(t, "the spare's readiness", spare.ready)
			d.exec("ALTER TABLE outbox RENAME payload TO content")
			if lasts {
				spare.wantEnd(failure.Config, "payload")
			} else {
				spare.unready("payload")
				if len(spare.health.Remedies()) == 0 {
					t.Error("without a remedy")
				}
			}
			d.exec("ALTER TABLE outbox RENAME content TO payload")
			if !lasts {
				eventually(t, "the spare's readiness", spare.ready)
				spare.stop()
			}
			d.publish(1, 1)
			d.finish(first)
		})
	}
}
