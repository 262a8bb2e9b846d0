package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// lossesEnv has all drills of losses run.
const lossesEnv = "CDC_OUTBOX_LOSSES"

// With errors.on_loss: stop, run ends with exit code 3 after each way to lose the slot.
// Three commands mend exactly the missing events, under load.
func TestE2EOnLossStop(t *testing.T) {
	for name, o := range map[string]options{"at_least_once": {}, "exactly_once": {exactlyOnce: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := pairWithoutSlot(t)
			d := newLossDrill(t, servers.Primary, o)
			d.stopsDown("the slot is dropped", func() { d.exec("SELECT pg_drop_replication_slot('" + d.slot + "')") })
			d.stopsDown("a standby is promoted without the slot", func() { servers.FailOver(t) })
			d.stopsDown("the slot is invalidated", d.invalidate)
			backup := d.backUp()
			d.stopsDown("a backup is restored", func() { d.restore(backup) })
			d.judgeBeside(o.exactlyOnce)
		})
	}
}

// A standby takes over with an old slot of the same name: copied once, or made there. If
// all of the log reached the standby, nothing is lost. Otherwise the new server's rows are
// compared; or commands have the old slot's log read again, with repetitions.
func TestE2ELossOfAnOldSlot(t *testing.T) {
	const stop, repair = "", "errors:\n  on_loss: repair\n"
	for name, c := range map[string]struct {
		policy         string
		copied, behind bool
		once           bool
		usual          bool // also without lossesEnv
	}{
		"copied behind repaired":       {repair, true, true, false, false},
		"copied behind repaired once":  {repair, true, true, true, true},
		"made behind repaired":         {repair, false, true, false, true},
		"made behind repaired once":    {repair, false, true, true, false},
		"copied behind stopped":        {stop, true, true, false, true},
		"copied behind stopped once":   {stop, true, true, true, false},
		"made behind stopped":          {stop, false, true, false, false},
		"made behind stopped once":     {stop, false, true, true, true},
		"copied with all the log":      {repair, true, false, false, false},
		"copied with all the log once": {stop, true, false, true, true},
		"made with all the log":        {stop, false, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if !c.usual && os.Getenv(lossesEnv) == "" {
				t.Skipf("set %s for all losses", lossesEnv)
			}
			t.Parallel()
			servers := pgtest.StartPair(t)
			if c.behind { // or nothing beyond the standby's log is sent
				servers.Primary.Exec(t, "ALTER SYSTEM SET synchronized_standby_slots = ''", "SELECT pg_reload_conf()")
			} else {
				servers.Primary.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'walreceiver'", "SELECT pg_reload_conf()")
			}
			if !c.copied {
				servers.Standby.Exec(t, "ALTER SYSTEM SET sync_replication_slots = off", "SELECT pg_reload_conf()")
			}
			d := newLossDrill(t, servers.Primary, options{config: c.policy, exactlyOnce: c.once})
			d.ages(servers, c.copied)
			if c.behind {
				servers.Standby.Exec(t, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
				pgtest.Await(t, connect(t, servers.Standby.URL("postgres")), `SELECT count(*) = 0 FROM pg_stat_wal_receiver`)
			}
			d.await(200) // which a standby behind does not have
			if c.behind {
				d.pause()
				d.arrived() // what only the old primary has is in Kafka
				d.confirmed()
			}
			lose := func() {
				servers.FailOver(t)
				if c.behind {
					d.begin()
				}
			}
			switch {
			case !c.behind:
				d.c.kill()
				d.kills++
				lose()
				d.c = d.start() // no loss
			case c.policy == repair:
				d.losesDown(name, lose)
			case c.once: // commands would repeat events
				d.losesDown(name, func() {
					lose()
					if code := startConnector(t, d.config).wait(); code != 3 {
						t.Errorf("exit code %d, want 3", code)
					}
					d.writeConfig(options{exactlyOnce: true, config: repair})
				})
			default:
				d.stopsDown(name, lose)
			}
			d.await(100)
			d.judgeBeside(c.once)
		})
	}
}

// ages has the standby keep a slot of the same name, and the connector go on.
func (d *lossDrill) ages(servers *pgtest.Pair, copied bool) {
	d.t.Helper()
	database := d.url[strings.LastIndex(d.url, "/")+1:]
	beside := connect(d.t, servers.Standby.URL(database))
	if copied {
		servers.Primary.Exec(d.t, "SELECT pg_log_standby_snapshot()") // a temporary copy waits for the snapshot
		pgtest.Await(d.t, beside, `SELECT count(*) > 0 FROM pg_replication_slots WHERE synced AND NOT temporary AND slot_name = $1`, d.slot)
		servers.Standby.Exec(d.t, "ALTER SYSTEM SET sync_replication_slots = off", "SELECT pg_reload_conf()")
	} else {
		made := make(chan error, 1)
		go func() {
			_, err := beside.Exec(context.Background(), "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", d.slot)
			made <- err
		}()
		await.Until(d.t, "the slot of the standby", func() bool { // which waits for such a record
			servers.Primary.Exec(d.t, "SELECT pg_log_standby_snapshot()")
			select {
			case err := <-made:
				must.OK(d.t, err)
				return true
			default:
				return false
			}
		})
	}
	d.await(100)
}

// newLossDrill has a connector publish the events of a load.
func newLossDrill(t *testing.T, server *pgtest.Server, o options) *lossDrill {
	t.Helper()
	o.server = server
	d := &lossDrill{world: newWorld(t, o), server: server}
	d.c = d.start()
	d.begin()
	d.await(200)
	return d
}

// invalidate has the server give the slot up.
func (d *lossDrill) invalidate() {
	d.t.Helper()
	d.exec("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
	await.Until(d.t, "loss of the slot", func() bool {
		d.exec("CREATE TABLE IF NOT EXISTS filler (v text)", "INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 2000)", "SELECT pg_switch_wal()", "CHECKPOINT")
		return d.count("SELECT count(*) FROM pg_replication_slots WHERE slot_name = '"+d.slot+"' AND wal_status = 'lost'") == 1
	})
}

// backUp copies the server's files, and has events follow that the copy lacks.
func (d *lossDrill) backUp() pgtest.Files {
	d.t.Helper()
	d.pause()
	d.arrived()
	d.server.Stop(d.t, pgtest.Fast)
	backup := d.server.Files(d.t)
	d.server.Resume(d.t)
	d.begin()
	d.await(200)
	d.pause()
	d.arrived() // the backup has none of them
	d.confirmed()
	return backup
}

// restore puts a copy in the place of the server's files, and writes to it.
func (d *lossDrill) restore(backup pgtest.Files) {
	d.t.Helper()
	d.server.Stop(d.t, pgtest.Fast)
	d.server.Become(d.t, backup)
	d.server.StandBy(d.t)
	d.server.Resume(d.t)
	d.server.Exec(d.t, "SELECT pg_promote()")
	d.begin()
}

// stopsDown kills the connector and loses the slot. The next run ends with exit code 3,
// and commands go on: what is missing by then arrives.
func (d *lossDrill) stopsDown(how string, lose func()) {
	d.t.Helper()
	d.c.kill()
	d.kills++
	await.Until(d.t, "end of the slot's reader", func() bool {
		return d.count("SELECT count(*) FROM pg_replication_slots WHERE slot_name = '"+d.slot+"' AND active") == 0
	})
	lose()
	if code := startConnector(d.t, d.config).wait(); code != 3 {
		d.t.Errorf("%s: exit code %d, want 3", how, code)
	}
	d.await(100)
	d.pause()
	missing, repeated := d.missing(), d.repetitions()
	d.wantExit(0, d.config, "setup", "--accept-gap", "--yes")
	d.c = d.start()
	d.begin()
	d.await(100)
	said := d.wantExit(0, d.config, "repair", "--publish", "--tmp", d.t.TempDir())
	published := regexp.MustCompile(`published \d+`).FindString(said)
	d.await(100)
	d.pause()
	d.arrived()
	left := 0
	now := d.missing()
	for id := range missing {
		if now[id] {
			left++
		}
	}
	if published == "" {
		published = "has nothing to publish"
	}
	d.t.Logf("%s: %d committed, %d of them missing before; repair %s; %d still missing, %d repeated",
		how, len(d.committed()), len(missing), published, left, d.repetitions()-repeated)
	if left > 0 || len(missing) == 0 {
		d.t.Errorf("%s: %d were missing, %d are missing still; repair says %s", how, len(missing), left, said)
	}
	d.begin()
}

// missing are the committed events without a record. Nothing is being committed.
func (d *lossDrill) missing() map[string]bool {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must.OK(d.t, d.reader.AwaitEnds(ctx, d.ends()))
	missing := map[string]bool{}
	for _, id := range d.committed() {
		missing[id] = true
	}
	for _, r := range d.reader.Records() {
		delete(missing, r.Header("id"))
	}
	return missing
}

// repetitions counts the records beyond the first of their event.
func (d *lossDrill) repetitions() int {
	seen := map[string]bool{}
	records := d.reader.Records()
	for _, r := range records {
		seen[r.Header("id")] = true
	}
	return len(records) - len(seen)
}

// judgeBeside is judge for repairs beside the stream: their records come after newer
// ones of the key, and are in order among themselves.
func (d *lossDrill) judgeBeside(exactly bool) {
	d.t.Helper()
	d.pause()
	d.arrived()
	d.c.stop()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must.OK(d.t, d.reader.AwaitEnds(ctx, d.ends()))
	d.settle()
	records := d.reader.Records()
	last := map[string]int{}
	seen := map[string]bool{}
	for i := range records {
		r := &records[i]
		way := fmt.Sprint(r.Key, ", repaired: ", r.Header("cdc-repair"))
		var n int
		must.Get(fmt.Sscan(r.Value, &n))(d.t)
		if n <= last[way] && !seen[r.Header("id")] {
			d.t.Errorf("%s: event %d comes after %d", way, n, last[way])
		}
		last[way], seen[r.Header("id")] = max(last[way], n), true
		r.Headers = r.Headers[:2] // those that repair publishes have no position
	}
	report := checker.Verify(checker.History{Transactions: d.ledger.Transactions(), Records: records, NoPositions: true})
	d.t.Logf("%s; %d kills", report, d.kills)
	for _, p := range report.Problems {
		if p.Kind != checker.Reordered {
			d.t.Errorf("%s: %s", p.Kind, p.Text)
		}
	}
	if most := d.kills * 1000; report.Repeated > most || exactly && report.Repeated > 0 {
		d.t.Errorf("%d events were repeated", report.Repeated)
	}
}

// An upgrade without its preparation is another cluster: run ends with exit code 3, also
// with errors.on_loss: repair. Three commands mend exactly the missing events.
func TestE2EMajorUpgradeUnprepared(t *testing.T) {
	for name, o := range map[string]options{
		"stopped":       {},
		"stopped once":  {exactlyOnce: true},
		"repaired":      {config: "errors:\n  on_loss: repair\n"},
		"repaired once": {config: "errors:\n  on_loss: repair\n", exactlyOnce: true},
	} {
		t.Run(name, func(t *testing.T) {
			drill(t, false)
			t.Parallel()
			server := pgtest.Start(t, pgtest.Own(), pgtest.Complete(t, 15))
			d := newLossDrill(t, server, o)
			d.stopsDown("pg_upgrade from 15 to 18", func() {
				d.await(100)
				d.pause()
				must.OK(t, server.Upgrade(t, 18))
				d.begin()
			})
			d.await(100)
			d.judgeBeside(o.exactlyOnce)
		})
	}
}
