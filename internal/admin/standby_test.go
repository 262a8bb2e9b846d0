package admin

import (
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// The server sends nothing a standby lacks, so check and status name an absent
// standby.
func TestCheckAndStatusNameAStandbyThatIsAway(t *testing.T) {
	f := newFixture(t, pgtest.Start(t, pgtest.Since(t, 17)).NewDatabase(t))
	f.setup()
	f.save()
	f.exec(`SELECT pg_create_physical_replication_slot('first', true)`, `ALTER SYSTEM SET synchronized_standby_slots = 'first'`, `SELECT pg_reload_conf()`)
	pgtest.Await(t, f.conn, `SELECT current_setting('synchronized_standby_slots') = 'first'`)
	f.wantCheck("postgresql.synchronized_standby_slots", Fail, `slot "first" is read by no standby`)
	f.hold()
	f.insert("order", "1", "{}")
	pgtest.Await(t, f.conn, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'WaitForStandbyConfirmation')`)
	r := Status(f.ctx(), f.Config)
	if err := r.Err(); err == nil || failure.ClassOf(err) != failure.Transient {
		t.Errorf("error %v", err)
	}
	must.Contain(t, text(t, r), "events do not get through", `slot "first" is read by no standby`, "-> start the standby")
}

// A standby that is connected, and takes no log, as with a full disk.
func TestCheckAndStatusNameAStandbyThatStandsStill(t *testing.T) {
	pair := pgtest.StartPair(t)
	f := newFixture(t, pair.Primary.NewDatabase(t))
	f.setup()
	f.save()
	f.hold()
	f.wantCheck("postgresql.synchronized_standby_slots", OK, "each of 1 is read by its standby")
	pgtest.Freeze(t, pair.Standby.URL("postgres"), `backend_type = 'walreceiver'`)
	f.insert("order", "1", "{}")
	pgtest.Await(t, f.conn, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'WaitForStandbyConfirmation')`)
	f.wantCheck("postgresql.synchronized_standby_slots", Fail, "PostgreSQL waits until the standbys")
	must.Contain(t, text(t, Status(f.ctx(), f.Config)), "events do not get through", "bytes behind", "-> find out what holds up the standby")
}

// A promoted standby's slots keep the mark of a copy, without a meaning there.
func TestCheckAfterAFailover(t *testing.T) {
	pair := pgtest.StartPair(t)
	f := newFixture(t, pair.Primary.NewDatabase(t))
	f.setup()
	copied := must.Get(catalog.Connect(f.ctx(), pair.Standby.URL("postgres")))(t)
	f.copied(copied)
	catalog.Close(copied)
	primary := f.Source.URL
	f.Source.URL = setting.Secret(pair.Standby.URL(f.conn.Config().Database))
	must.Contain(t, text(t, Status(f.ctx(), f.Config)), "the server is a standby", "             a standby's copy")
	f.wantCheck("slot", Fail, "is a standby's copy")
	f.Source.URL = primary
	pair.FailOver(t)
	f.conn = must.Get(catalog.Connect(f.ctx(), f.Source.URL.Reveal()))(t)
	t.Cleanup(func() { catalog.Close(f.conn) })
	if slot, ok := f.slot(); !ok || !slot.Synced {
		t.Fatalf("the slot after the failover is %+v, there: %v", slot, ok)
	}
	f.wantCheck("slot", OK, "nobody is reading it")
}

func TestCheckNamesSettingsThatWaitForARestart(t *testing.T) {
	f := newFixture(t, pgtest.Start(t).NewDatabase(t))
	f.setup()
	f.wantCheck("postgresql.pending_restart", OK, "no change")
	f.exec(`ALTER SYSTEM SET wal_level = 'replica'`, `SELECT pg_reload_conf()`)
	pgtest.Await(t, f.conn, `SELECT pending_restart FROM pg_settings WHERE name = 'wal_level'`)
	f.wantCheck("postgresql.pending_restart", Warn, "wal_level (logical now)")
}

// The slots of a standby are its own, or copies. The connector's slot, missing
// there or behind, is no loss, and a decision made there would spoil the
// checkpoint.
func TestNothingIsDecidedOnAStandby(t *testing.T) {
	for name, gone := range map[string]bool{"without the slot": true, "with an older copy of it": false} {
		t.Run(name, func(t *testing.T) {
			server := pgtest.Start(t)
			f := newFixture(t, server.URL("postgres"))
			f.setup()
			cp := f.save()
			cp.LSN += 1 << 20 // the primary has gone on since
			cp.Landmark.Commit = cp.LSN
			f.put(cp)
			if gone {
				f.exec(dropSlot(f))
			}
			server.Stop(t, pgtest.Fast)
			server.StandBy(t)
			server.Resume(t)

			const says = "the server is a standby"
			r := Status(f.ctx(), f.Config)
			if err := r.Err(); err == nil || failure.ClassOf(err) != failure.Config {
				t.Errorf("status: %v", err)
			}
			if shown := text(t, r); !strings.HasPrefix(shown, says) || strings.Contains(shown, "--accept-gap") {
				t.Errorf("status says\n%s", shown)
			}
			report := Check(f.ctx(), f.Config)
			wantFinding(t, report, "postgresql.primary", Fail, says)
			wantFinding(t, report, "checkpoint", Skipped, "primary")
			if shown := text(t, report); strings.Contains(shown, "--accept-gap") {
				t.Errorf("check says\n%s", shown)
			}
			steps, err := Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium})
			wantClass(t, err, failure.Config, says)
			wantSteps(t, steps)
			_, err = AcceptGap(f.ctx(), f.Config, GapOptions{Yes: true})
			wantClass(t, err, failure.Config, says)
			_, err = Adopt(f.ctx(), f.Config, AdoptOptions{Yes: true})
			wantClass(t, err, failure.Config, says)
			if got := f.stored(); got == nil || got.LSN != cp.LSN || got.Epoch != cp.Epoch {
				t.Errorf("the checkpoint is %+v, want that of before", got)
			}
		})
	}
}
