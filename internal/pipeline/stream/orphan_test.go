package stream

import (
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

// Through pgpool-II no stream starts, and the server's process stays: no instance stands
// by, ready, behind its own leftover.
func TestASpareBehindItsOwnOrphanIsNotReady(t *testing.T) {
	d := outbox(t)
	d.limits.stalled, d.limits.spareLook = 500*time.Millisecond, 100*time.Millisecond
	direct := d.opts.URL
	d.opts.URL = pgtest.Pooler(t, direct)
	first := d.run()
	first.unready("no answer from PostgreSQL")
	if remedies := first.health.Remedies(); len(remedies) == 0 {
		t.Error("without a remedy")
	}
	first.standsBy()
	first.unready("which no running instance speaks for")
	d.opts.URL = direct
	d.insert(1, 1)
	second := d.run().standsBy()
	second.unready("which no running instance speaks for")
	first.stop()
	eventually(t, "the spare to take over, as its remedy says", func() bool {
		if second.role() == session.Standby {
			d.exec("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '" + d.opts.Slot + "' AND active")
		}
		return second.role() == session.Active
	})
	d.arrive()
	d.finish(second)
}

// An instance reading the slot and not able to confirm is no orphan: a spare could take
// over, and is ready.
func TestAnInstanceThatStandsStillIsNoOrphan(t *testing.T) {
	d := outbox(t)
	d.exec("SET application_name = 'cdc-outbox'")
	i := d.run().streams()
	d.gate.hold()
	d.insert(1, 1)
	d.gate.reached(t)
	eventually(t, "the instance to show that it reads the slot", func() bool {
		return !must.Get(catalog.Orphaned(t.Context(), d.conn, d.opts.Slot))(t)
	})
	d.gate.open()
	d.arrive()
	d.finish(i)
}
