package admin

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// Before the day, check tells the result of a failover to the standby, and the
// remedy.
func TestCheckLooksAtTheStandbys(t *testing.T) {
	pair := pgtest.StartPair(t)
	f := newFixture(t, pair.Primary.NewDatabase(t))
	primary, standby := must.Get(url.Parse(f.Source.URL.Reveal()))(t), must.Get(url.Parse(pair.Standby.URL("postgres")))(t)
	f.wantFailover(Warn, "1 standbys")
	f.Source.Standbys = []string{standby.Host}
	f.wantFailover(OK, "no slot to copy yet")

	there := must.Get(catalog.Connect(f.ctx(), standby.String()))(t)
	t.Cleanup(func() { catalog.Close(there) })
	// set changes a setting of the standby, wants check's words about it, and puts it back.
	set := func(name, value, words string) {
		t.Helper()
		change := func(sql, awaited string) {
			must.Get(there.Exec(f.ctx(), sql))(t)
			must.Get(there.Exec(f.ctx(), "SELECT pg_reload_conf()"))(t)
			pgtest.Await(t, there, "SELECT current_setting('"+name+"') = $1", awaited)
		}
		var before string
		must.OK(t, there.QueryRow(f.ctx(), "SELECT current_setting($1)", name).Scan(&before))
		change("ALTER SYSTEM SET "+name+" = '"+value+"'", value)
		f.wantFailover(Warn, words)
		change("ALTER SYSTEM SET "+name+" = '"+strings.ReplaceAll(before, "'", "''")+"'", before)
	}
	set("sync_replication_slots", "off", "no copy of the slot: sync_replication_slots is off")
	f.setup()
	f.copied(there)
	f.wantFailover(OK, "has a copy of the slot")
	f.wantStatus("failover     " + standby.Host + " has a copy of the slot")
	set("primary_conninfo", "host=127.0.0.1 user=postgres port="+primary.Port(), "not moved on: its primary_conninfo has no dbname")
	set("synchronized_standby_slots", "nowhere", "synchronized_standby_slots names nowhere")

	// The same hosts in source.url; the standby is away for a while.
	primary.Host += "," + standby.Host
	primary.RawQuery = "target_session_attrs=read-write"
	f.Source.Standbys, f.Source.URL = nil, setting.Secret(primary.String())
	pair.Standby.Stop(t, pgtest.Fast)
	f.wantFailover(Warn, "cannot be asked")
	f.wantStatus("failover     "+standby.Host+" cannot be asked", "-> start PostgreSQL")
	pair.Standby.Resume(t)
	f.wantFailover(OK, "has a copy of the slot")
}

// The copy of a slot without a reader is kept once the slot has moved on. Until
// then the copy would not survive a promotion.
func TestCheckNamesACopyThatIsTemporary(t *testing.T) {
	pair := pgtest.StartPair(t)
	f := newFixture(t, pair.Primary.NewDatabase(t))
	f.Source.Standbys = []string{must.Get(url.Parse(pair.Standby.URL("postgres")))(t).Host}
	f.setup()
	there := must.Get(catalog.Connect(f.ctx(), pair.Standby.URL("postgres")))(t)
	t.Cleanup(func() { catalog.Close(there) })
	pgtest.Await(t, there, `SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND synced AND temporary)`, f.Source.Slot)
	f.wantFailover(Warn, "is temporary")
	f.copied(there)
	f.wantFailover(OK, "has a copy of the slot")
}

// PostgreSQL copies no slot to a standby of a standby, whatever the settings there.
func TestCheckNamesAStandbyOfAStandby(t *testing.T) {
	pair := pgtest.StartPair(t)
	f := newFixture(t, pair.Primary.NewDatabase(t))
	above, below := hostOf(t, pair.Standby), hostOf(t, pair.Below(t))
	f.Source.Standbys = []string{above, below}
	f.setup()
	there := must.Get(catalog.Connect(f.ctx(), pair.Standby.URL("postgres")))(t)
	t.Cleanup(func() { catalog.Close(there) })
	f.copied(there)
	f.wantFailover(OK, above+" has a copy of the slot")
	f.wantFailover(Warn, below+" has no copy of the slot: it reads the log of another standby, "+above)
	f.Source.Standbys = []string{below}
	f.wantFailover(Warn, "no slot \"below\", its primary_slot_name")
}

func hostOf(t *testing.T, s *pgtest.Server) string {
	t.Helper()
	return must.Get(url.Parse(s.URL("postgres")))(t).Host
}

// Another program's slot may be no failover slot.
func TestCheckNamesASlotThatIsNotCopied(t *testing.T) {
	f := newFixture(t, pgtest.Start(t, pgtest.Since(t, 17)).NewDatabase(t))
	f.setup()
	f.exec(dropSlot(f), `SELECT pg_create_logical_replication_slot('`+f.Source.Slot+`', 'pgoutput')`)
	f.Source.Failover = config.FailoverAlways
	f.wantFailover(OK, "the next start of run makes it one")
	f.forget()
	steps := must.Get(Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium}))(t)
	must.Contain(t, text(t, steps), "no failover slot yet: the next start of run makes it one")
	if slot, _ := f.slot(); slot.Failover {
		t.Error("setup has altered the slot")
	}
	f.Source.Failover = config.FailoverNew
	got := f.wantFailover(Warn, "no failover slot")
	_, command, _ := strings.Cut(got.Remedy, "-c '")
	repl := must.Get(catalog.ConnectReplication(f.ctx(), f.Source.URL.Reveal()))(t)
	must.Get(repl.Exec(f.ctx(), strings.TrimSuffix(command, "'")).ReadAll())(t)
	catalog.Close(repl)
	f.wantFailover(OK, "no standby")
}

// wantFailover returns once check has the finding for one of the servers.
func (f *fixture) wantFailover(outcome Outcome, words string) (found Finding) {
	f.t.Helper()
	f.shows(fmt.Sprintf("failover: %s with %q", outcome, words), func() (any, bool) {
		all := Check(f.ctx(), f.Config).Findings
		i := slices.IndexFunc(all, func(found Finding) bool {
			return found.Name == "failover" && found.Outcome == outcome && strings.Contains(found.Detail, words)
		})
		if i >= 0 {
			found = all[i]
		}
		return all, i >= 0
	})
	return found
}

// wantStatus returns once the text of status has the words.
func (f *fixture) wantStatus(words ...string) {
	f.t.Helper()
	f.shows(fmt.Sprintf("%q in the status", words), func() (any, bool) {
		shown := text(f.t, Status(f.ctx(), f.Config))
		return shown, !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(shown, w) })
	})
}

// shows looks again and again, as a busy server may answer too late for a single look.
func (f *fixture) shows(what string, look func() (shown any, met bool)) {
	f.t.Helper()
	var shown any
	defer func() {
		if f.t.Failed() {
			f.t.Logf("the last look: %+v", shown)
		}
	}()
	await.Until(f.t, what, func() (met bool) {
		shown, met = look()
		return met
	})
}

// copied returns once the standby has a copy of the slot fit for a promotion.
func (f *fixture) copied(standby *pgx.Conn) {
	f.t.Helper()
	await.Until(f.t, "a copy of the slot", func() (synced bool) {
		f.exec(`SELECT pg_log_standby_snapshot()`, `SELECT pg_replication_slot_advance('`+f.Source.Slot+`', pg_current_wal_lsn())`) // the copy waits for the slot to move
		must.Get(standby.Exec(f.ctx(), `SELECT pg_reload_conf()`))(f.t)                                                             // wakes the process that copies slots, which naps for up to 30 s
		must.OK(f.t, standby.QueryRow(f.ctx(), `SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND synced AND NOT temporary)`, f.Source.Slot).Scan(&synced))
		return synced
	})
}
