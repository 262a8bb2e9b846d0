package stream

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// A standby named by synchronized_standby_slots is away: the server sends nothing and
// says so each second. The stream waits and names the standby; a stop of the server
// meanwhile ends the stream with an error of the same kind, and no loss either.
func TestStreamWaitsForAStandbyThatIsAway(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Since(t, 17))
	d := newDatabase(t, server.NewDatabase(t))
	i := d.run().streams()
	d.publish(1, 1)
	d.exec("SELECT pg_create_physical_replication_slot('first', true)")
	d.exec("ALTER SYSTEM SET synchronized_standby_slots = 'first'")
	d.exec("SELECT pg_reload_conf()")
	d.insert(1, 1)
	i.unready(`slot "first" is read by no standby`)
	eventually(t, "a warning", func() bool {
		return i.logs.FilterMessage("the server waits for a standby, and sends nothing").Len() > 0
	})
	if i.metrics.reconnected() > 0 {
		t.Error("the stream was left")
	}
	d.exec("ALTER SYSTEM SET synchronized_standby_slots = 'first, second'")
	d.exec("SELECT pg_reload_conf()")
	i.unready(`"second" does not exist`)

	server.Stop(t, pgtest.Fast)
	server.Resume(t)
	d.connect()
	i.unready(`"second" does not exist`)

	d.exec("ALTER SYSTEM SET synchronized_standby_slots = 'first'")
	d.exec("SELECT pg_reload_conf()")
	eventually(t, "the event, once the standby has the log", func() bool {
		d.exec("SELECT pg_replication_slot_advance('first', pg_current_wal_lsn())")
		return len(d.topic.ids()) == 2
	})
	d.exec("ALTER SYSTEM RESET synchronized_standby_slots")
	d.exec("SELECT pg_reload_conf()")
	eventually(t, "readiness", i.ready)
	d.finish(i)
}

// A slot of another program, or from before an upgrade, is no failover slot. It is
// made one before it is read, if so configured; before PostgreSQL 17 nothing is.
func TestExistingSlotIsMadeAFailoverSlot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		server func(*testing.T) *pgtest.Server
		always bool
		want   string
	}{
		"as configured":     {func(t *testing.T) *pgtest.Server { return pgtest.Start(t, pgtest.Since(t, 17)) }, true, "true"},
		"not by default":    {func(t *testing.T) *pgtest.Server { return pgtest.Start(t, pgtest.Since(t, 17)) }, false, "false"},
		"nor on any server": {func(t *testing.T) *pgtest.Server { return pgtest.Shared(t) }, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, c.server(t).NewDatabase(t))
			d.opts.Failover = c.always
			d.exec("CREATE PUBLICATION cdc_outbox FOR TABLE outbox")
			d.exec("SELECT pg_create_logical_replication_slot('" + d.opts.Slot + "', 'pgoutput')")
			i := d.run().streams()
			got := d.text("SELECT coalesce(to_jsonb(s)->>'failover', '') FROM pg_replication_slots s WHERE slot_name = '" + d.opts.Slot + "'")
			if c.want != "" && got != c.want || c.want == "" && got == "" && len(i.logs.FilterMessageSnippet("made the slot a failover slot").All()) > 0 {
				t.Errorf("failover is %q, want %q", got, c.want)
			}
			d.publish(3, 1)
			d.finish(i)
		})
	}
}
