package e2e

import (
	"syscall"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// The first snapshot is pending when the slot is lost, or when a standby takes over with the
// slot. Every event arrives: the snapshot goes on, or a repair compares all
// rows.
func TestE2ESnapshotPendingAtALoss(t *testing.T) {
	t.Parallel()
	const stop, repair = "", "errors:\n  on_loss: repair\n"
	drop := func(d *lossDrill, _ *pgtest.Pair) { d.exec("SELECT pg_drop_replication_slot('" + d.slot + "')") }
	failOver := func(d *lossDrill, servers *pgtest.Pair) { servers.FailOver(d.t) }
	// A standby's own copy of a slot that has not moved yet is temporary: the slot goes over
	// with the files, as by Patroni.
	withSlot := func(d *lossDrill, _ *pgtest.Pair) {
		d.exec("ALTER SYSTEM RESET synchronous_standby_names")
		d.server.Stop(d.t, pgtest.Immediate)
		d.server.StandBy(d.t)
		d.server.Resume(d.t)
		d.server.Exec(d.t, "SELECT pg_promote()")
	}
	for name, c := range map[string]struct {
		policy string
		copied bool // the standby has the slot: nothing is lost
		beside bool // the connector is not killed, but held meanwhile
		lose   func(*lossDrill, *pgtest.Pair)
	}{
		"dropped_beside_repaired": {repair, false, true, func(d *lossDrill, servers *pgtest.Pair) {
			d.exec("SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots WHERE slot_name = '" + d.slot + "' AND active")
			drop(d, servers)
		}},
		"dropped_repaired":              {repair, false, false, drop},
		"dropped_stopped":               {stop, false, false, drop},
		"invalidated_repaired":          {repair, false, false, func(d *lossDrill, _ *pgtest.Pair) { d.invalidate() }},
		"promoted_repaired":             {repair, false, false, failOver},
		"promoted_beside_repaired":      {repair, false, true, failOver},
		"promoted_stopped":              {stop, false, false, failOver},
		"promoted_with_the_slot":        {repair, true, false, withSlot},
		"promoted_with_the_slot_beside": {repair, true, true, withSlot},
	} {
		for delivery, once := range map[string]bool{"at_least_once": false, "exactly_once": true} {
			t.Run(name+"_"+delivery, func(t *testing.T) {
				t.Parallel()
				servers := pairWithoutSlot(t)
				d := &lossDrill{server: servers.Primary, world: newWorld(t, options{server: servers.Primary, exactlyOnce: once,
					kafka: "max_buffered_bytes: 1MiB", config: "checkpoint:\n  interval: 10ms\n" + c.policy})}
				d.rewriteConfig("source:\n", "source:\n  snapshot: initial\n")
				d.begin()
				d.bulk(pendingRows)
				d.c = d.start()
				saved := d.pendingFrom()
				switch {
				case c.beside:
					c.lose(d, servers)
					d.c.signal(syscall.SIGCONT)
				case c.policy == stop:
					d.stopsDown(name, func() { c.lose(d, servers) })
				case c.copied:
					d.c.kill()
					d.kills++
					c.lose(d, servers)
					d.c = d.start()
					if from := d.c.snapshotFrom(); from < saved {
						t.Errorf("the snapshot goes on behind row %d, want row %d or later", from, saved)
					}
				default:
					d.losesDown(name, func() { c.lose(d, servers) })
				}
				d.await(100)
				if c.policy == repair && !c.copied {
					d.repaired(name)
				}
				if c.policy == stop {
					d.judgeBeside(once)
					return
				}
				d.pause()
				d.arrived()
				d.c.stop()
				d.judge(once)
			})
		}
	}
}

// pendingRows are the rows of a snapshot that is pending at a loss.
const pendingRows = 30_000

// pendingFrom holds the connector in the middle of the first snapshot, and returns how many
// rows are published, as far as the checkpoint knows.
func (d *lossDrill) pendingFrom() int64 {
	d.t.Helper()
	d.snapshotSaved(1000)
	d.c.signal(syscall.SIGSTOP)
	saved, pending := d.snapshotSaved(1000)
	if !pending {
		d.t.Fatal("the loss is behind the end of the snapshot")
	}
	return saved
}
