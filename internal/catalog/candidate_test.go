package catalog

import (
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// Each case changes a standby with a ready copy in a single place.
func TestCandidates(t *testing.T) {
	yes, no := true, false
	own := original{
		name:   "s",
		server: Server{Version: 170011, SystemID: "1", Database: "app", WALLevel: "logical", Timeline: 2},
		slot:   Slot{Name: "s", Type: "logical", Database: "app", Failover: true, ConfirmedFlush: 500}, exists: true,
		instance: Instance{Started: "first"}, physical: []string{"standby"},
	}
	for name, c := range map[string]struct {
		change func(p *original, s *standing)
		state  CandidateState
		text   string
		remedy string
	}{
		"ready":       {func(*original, *standing) {}, CandidateReady, "400 bytes of log behind", ""},
		"the primary": {func(p *original, s *standing) { s.instance = p.instance }, CandidatePrimary, "own server", ""},
		"promoted, with the mark of a copy": {func(p *original, s *standing) { p.slot.Synced, s.instance = true, p.instance },
			CandidatePrimary, "own server", ""},
		"another cluster":  {func(_ *original, s *standing) { s.server.SystemID = "2" }, CandidateApart, "another cluster", "take it out"},
		"a second primary": {func(_ *original, s *standing) { s.server.InRecovery = false }, CandidateApart, "takes writes itself", "pg_rewind"},
		"before 17": {func(_ *original, s *standing) { s.server.Version, s.exists = 160015, false },
			CandidateUnsupported, "exit code 3", "Patroni"},
		"before 17, kept by Patroni": {func(_ *original, s *standing) { s.server.Version, s.patroni, s.slot.Synced = 160015, true, false },
			CandidateUnsupported, "does not move it on", ""},
		"kept by Patroni": {func(_ *original, s *standing) { s.slot.Synced, s.syncs, s.patroni = false, false, true },
			CandidateReady, "Patroni moves on", ""},
		"kept by Patroni, beside copies of others": {func(p *original, s *standing) { p.slot.Failover, s.slot.Synced, s.patroni = false, false, true },
			CandidateReady, "Patroni moves on", ""},
		"temporary": {func(_ *original, s *standing) { s.slot.Temporary = true }, CandidateTemporary, "gone after a promotion", "let the connector run"},
		"ready, and skipped": {func(_ *original, s *standing) { s.slot.SyncSkipped = "wal_not_flushed" },
			CandidateReady, "skipped: wal_not_flushed", ""},
		"temporary, and skipped": {func(_ *original, s *standing) { s.slot.Temporary, s.slot.SyncSkipped = true, "no_consistent_snapshot" },
			CandidateTemporary, "skipped: no_consistent_snapshot", "let the connector run"},
		"invalidated": {func(_ *original, s *standing) { s.slot.InvalidationReason = "rows_removed" }, CandidateInvalidated, "rows_removed", "pg_sync_replication_slots"},
		"the demoted one's": {func(_ *original, s *standing) { s.slot.Synced = false },
			CandidateBlocked, "no copy", "SELECT pg_drop_replication_slot('s');"},
		"the demoted one's, read": {func(_ *original, s *standing) { s.slot.Synced, s.slot.Active, s.slot.ActivePID = false, true, 7 },
			CandidateBlocked, "no copy", "(pid 7)"},
		"the demoted one's, and no copy after it": {func(_ *original, s *standing) { s.slot.Synced, s.dbname = false, &no },
			CandidateBlocked, "its primary_conninfo has no dbname", "SELECT pg_drop_replication_slot('s'); then add it"},
		"the demoted one's, and the promoted one has none": {func(p *original, s *standing) { p.exists, s.slot.Synced = false, false },
			CandidateBlocked, "the primary has none", "make that server the primary again"},
		"not moved on": {func(_ *original, s *standing) { s.syncs = false }, CandidateStale, "not moved on", "sync_replication_slots = on"},
		"held": {func(_ *original, s *standing) { s.awaited = []string{"b"} },
			CandidateHeld, "synchronized_standby_slots names b", "pg_create_physical_replication_slot('b', true)"},
		"no failover slot":       {func(p *original, s *standing) { p.slot.Failover, s.exists = false, false }, CandidateMissing, "no failover slot", "(FAILOVER true)"},
		"synchronization is off": {func(_ *original, s *standing) { s.exists, s.syncs = false, false }, CandidateMissing, "sync_replication_slots is off", "= on"},
		"feedback is off":        {func(_ *original, s *standing) { s.exists, s.feedback = false, false }, CandidateMissing, "hot_standby_feedback is off", "= on"},
		"wal_level":              {func(_ *original, s *standing) { s.exists, s.server.WALLevel = false, "replica" }, CandidateMissing, "wal_level is replica", "logical"},
		"no primary_slot_name":   {func(_ *original, s *standing) { s.exists, s.slotName = false, "" }, CandidateMissing, "primary_slot_name is empty", "primary_slot_name"},
		"no slot for the standby": {func(p *original, s *standing) { s.exists, p.physical = false, nil },
			CandidateMissing, `no slot "standby"`, "pg_create_physical_replication_slot('standby', true)"},
		"below another standby": {func(_ *original, s *standing) { s.exists, s.slotName, s.above = false, "below", "b:5432" },
			CandidateMissing, `of another standby, b:5432, which has slot "below"`, "have it read the primary's log"},
		"a slot of the same name below another standby": {func(_ *original, s *standing) { s.above = "b:5432" }, CandidateReady, "400 bytes", ""},
		"no dbname": {func(_ *original, s *standing) { s.exists, s.dbname = false, &no }, CandidateMissing, "no dbname", "dbname=app"},
		"no dbname in a tool's file": {func(_ *original, s *standing) { s.exists, s.dbname, s.conninfoFile = false, &no, "/db/tool.conf" },
			CandidateMissing, "no dbname", "add dbname=app to it in /db/tool.conf"},
		"no dbname, set by ALTER SYSTEM": {func(_ *original, s *standing) {
			s.exists, s.dbname, s.conninfoFile = false, &no, "/postgresql.auto.conf"
		},
			CandidateMissing, "no dbname", "ALTER SYSTEM SET primary_conninfo"},
		"a dbname that is not shown": {func(_ *original, s *standing) { s.exists, s.dbname = false, nil },
			CandidateMissing, "which this role may not see", "pg_sync_replication_slots"},
		"on its way":  {func(_ *original, s *standing) { s.exists = false }, CandidateMissing, "not come yet", "wait a moment"},
		"no slot yet": {func(p *original, s *standing) { p.exists, s.exists = false, false }, CandidateMissing, "no slot to copy yet", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, s := own, standing{
				server: own.server, slot: own.slot, exists: true, instance: Instance{Started: "second", InRecovery: true},
				syncs: true, feedback: true, slotName: "standby", dbname: &yes,
			}
			s.server.InRecovery, s.slot.Synced, s.slot.ConfirmedFlush = true, true, 100
			c.change(&p, &s)
			got := p.judge(s)
			if got.State != c.state || !strings.Contains(got.Text, c.text) || !strings.Contains(got.Remedy, c.remedy) || (c.remedy == "") != (got.Remedy == "") {
				t.Errorf("got %+v, want %s with %q and remedy %q", got, c.state, c.text, c.remedy)
			}
		})
	}
}

// The server finds the dbname in all forms of a connection string.
func TestHasDatabaseName(t *testing.T) {
	conn := must.Get(Connect(t.Context(), pgtest.Shared(t).URL("postgres")))(t)
	defer Close(conn)
	for conninfo, want := range map[string]bool{
		"":                                       false,
		"host=a user=b":                          false,
		"host=a dbname=app":                      true,
		"dbname = 'app' host=a":                  true,
		"user=b dbname='' host=a":                false,
		"user=b dbname=":                         false,
		"user=b fallback_application_name=x":     false,
		"postgres://b@a/app?application_name=x":  true,
		"postgresql://b@a:1,c:2/app":             true,
		"postgresql://b@a:1/?sslmode=prefer":     false,
		"postgresql://b@a:1?dbname=app":          true,
		"postgresql://b@a:1/?x=1&dbname=app&y=2": true,
	} {
		var got bool
		must.OK(t, conn.QueryRow(t.Context(), "SELECT "+hasDatabaseName+" FROM (VALUES ($1::text)) v(setting)", conninfo).Scan(&got))
		if got != want {
			t.Errorf("%q has a dbname: %t, want %t", conninfo, got, want)
		}
	}
}

func TestHosts(t *testing.T) {
	for address, want := range map[string]bool{
		"db": true, "db.example.com:5433": true, "10.0.0.1": true, "10.0.0.1:5432": true, "::1": true, "[::1]:5432": true,
		"": false, ":5432": false, "db:": false, "db:0": false, "db:x": false, "db:70000": false, "a:b:c": false, "postgres://db": false, "u@db": false,
	} {
		if err := CheckHost(address); (err == nil) != want {
			t.Errorf("%q: %v", address, err)
		}
	}
}
