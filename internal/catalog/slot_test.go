package catalog

import (
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

func TestParseSlotOfEachVersion(t *testing.T) {
	const common = `"slot_name":"s","plugin":"pgoutput","slot_type":"logical","database":"app","temporary":false,` +
		`"restart_lsn":"0/A0","confirmed_flush_lsn":"1/B0","two_phase":false,`
	size := int64(1 << 20)
	base := Slot{Name: "s", Plugin: "pgoutput", Type: "logical", Database: "app", RestartLSN: 0xA0, ConfirmedFlush: 1<<32 + 0xB0}
	with := func(change func(*Slot)) Slot { s := base; change(&s); return s }

	for _, tt := range []struct {
		name, json string
		want       Slot
		lost       string
	}{
		{"14 active", `{` + common + `"active":true,"active_pid":7,"wal_status":"reserved","safe_wal_size":null}`,
			with(func(s *Slot) { s.Active, s.ActivePID, s.WALStatus = true, 7, "reserved" }), ""},
		{"14 in danger", `{` + common + `"active":false,"active_pid":null,"wal_status":"unreserved","safe_wal_size":1048576}`,
			with(func(s *Slot) { s.WALStatus, s.SafeWALSize = "unreserved", &size }), ""},
		{"15 lost", `{` + strings.Replace(common, `"0/A0"`, `null`, 1) + `"active":false,"wal_status":"lost","safe_wal_size":null}`,
			with(func(s *Slot) { s.WALStatus, s.RestartLSN = "lost", 0 }), "wal_status is lost"},
		{"16 conflicting", `{` + common + `"active":false,"wal_status":"lost","conflicting":true}`,
			with(func(s *Slot) { s.WALStatus, s.InvalidationReason = "lost", "conflict with recovery" }), "conflict with recovery"},
		{"17 removed", `{` + common + `"active":false,"wal_status":"lost","conflicting":false,"invalidation_reason":"wal_removed","failover":true,"synced":false,"inactive_since":"2026-01-01T00:00:00+00:00"}`,
			with(func(s *Slot) { s.WALStatus, s.InvalidationReason, s.Failover = "lost", "wal_removed", true }), "wal_removed"},
		{"19, a copy that is left behind", `{` + common + `"active":false,"wal_status":"reserved","failover":true,"synced":true,"slotsync_skip_reason":"wal_not_flushed"}`,
			with(func(s *Slot) {
				s.WALStatus, s.Failover, s.Synced, s.SyncSkipped = "reserved", true, true, "wal_not_flushed"
			}), ""},
		{"18 idle", `{` + common + `"active":false,"wal_status":"reserved","invalidation_reason":"idle_timeout","two_phase_at":null}`,
			with(func(s *Slot) { s.WALStatus, s.InvalidationReason = "reserved", "idle_timeout" }), "idle_timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := must.Get(parseSlot([]byte(tt.json)))(t)
			if (got.SafeWALSize == nil) != (tt.want.SafeWALSize == nil) || got.SafeWALSize != nil && *got.SafeWALSize != *tt.want.SafeWALSize {
				t.Errorf("safe_wal_size %v, want %v", got.SafeWALSize, tt.want.SafeWALSize)
			}
			got.SafeWALSize, tt.want.SafeWALSize = nil, nil
			if got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			if reason, lost := got.Lost(); reason != tt.lost || lost != (tt.lost != "") {
				t.Errorf("Lost() = %q, %v, want %q", reason, lost, tt.lost)
			}
		})
	}
}

func TestSlotUnfit(t *testing.T) {
	for _, tt := range []struct {
		name string
		slot Slot
		says string // "" for nothing
	}{
		{"ours", Slot{Type: "logical", Plugin: Plugin, Database: "app"}, ""},
		{"ours, in use", Slot{Type: "logical", Plugin: Plugin, Database: "app", Active: true}, ""},
		{"being created", Slot{Type: "logical", Database: "app", Active: true}, ""},
		{"being created elsewhere", Slot{Type: "logical", Database: "other", Active: true}, `database "other"`},
		{"other database", Slot{Type: "logical", Plugin: Plugin, Database: "other"}, `database "other"`},
		{"other plugin", Slot{Type: "logical", Plugin: "wal2json", Database: "app"}, "wal2json"},
		{"physical", Slot{Type: "physical"}, "physical"},
		{"temporary", Slot{Type: "logical", Plugin: Plugin, Database: "app", Temporary: true}, "temporary"},
		{"two-phase", Slot{Type: "logical", Plugin: Plugin, Database: "app", TwoPhase: true}, "two_phase"},
	} {
		err := tt.slot.Unfit("app")
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.says)
		}
		if err != nil {
			wantConfig(t, err)
		}
	}
}

func TestCreateSlotCommand(t *testing.T) {
	for _, tt := range []struct {
		name    string
		version int
		opts    SlotOptions
		want    string
	}{
		{"plain", 140000, SlotOptions{}, `CREATE_REPLICATION_SLOT "s" LOGICAL pgoutput NOEXPORT_SNAPSHOT`},
		{"temporary with snapshot", 150000, SlotOptions{Temporary: true, ExportSnapshot: true}, `CREATE_REPLICATION_SLOT "s" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT`},
		{"failover is not asked of 16", 160000, SlotOptions{Failover: true}, `CREATE_REPLICATION_SLOT "s" LOGICAL pgoutput NOEXPORT_SNAPSHOT`},
		{"failover on 17", 170000, SlotOptions{Failover: true}, `CREATE_REPLICATION_SLOT "s" LOGICAL pgoutput (SNAPSHOT 'nothing', FAILOVER)`},
		{"failover with snapshot on 18", 180000, SlotOptions{Failover: true, ExportSnapshot: true}, `CREATE_REPLICATION_SLOT "s" LOGICAL pgoutput (SNAPSHOT 'export', FAILOVER)`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := createSlotCommand("s", tt.version, tt.opts); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestSlotLifeCycle(t *testing.T) {
	ctx := pgtest.Context(t)
	url := pgtest.Shared(t).NewDatabase(t)
	conn := connect(t, url)
	server := must.Get(ReadServer(ctx, conn))(t)
	if _, ok, err := ReadSlot(ctx, conn, "1st_slot"); ok || err != nil {
		t.Fatalf("found a slot before it was created: %v, %v", ok, err)
	}

	repl := replication(t, url)
	consistent, snapshot, err := CreateSlot(ctx, repl, "1st_slot", server.Version, SlotOptions{Failover: true})
	must.OK(t, err)
	if snapshot != "" {
		t.Errorf("got snapshot %q without asking", snapshot)
	}
	slot, ok, err := ReadSlot(ctx, conn, "1st_slot")
	if err != nil || !ok {
		t.Fatalf("read slot: %v, %v", ok, err)
	}
	if slot.Plugin != Plugin || slot.Type != "logical" || slot.Database != server.Database || slot.Active || slot.Temporary ||
		slot.ConfirmedFlush != consistent || slot.RestartLSN == 0 || slot.WALStatus != "reserved" {
		t.Errorf("unexpected slot %+v at %s", slot, consistent)
	}
	if slot.Failover != (server.Major() >= 17) {
		t.Errorf("failover is %v on PostgreSQL %d", slot.Failover, server.Major())
	}

	_, _, err = CreateSlot(ctx, repl, "1st_slot", server.Version, SlotOptions{})
	wantConfig(t, err)

	must.OK(t, DropSlot(ctx, conn, "1st_slot"))
	if _, ok, err := ReadSlot(ctx, conn, "1st_slot"); ok || err != nil {
		t.Fatalf("found a slot after it was dropped: %v, %v", ok, err)
	}
}

func walSuffices(t *testing.T, url string) bool {
	return must.Get(ReadServer(pgtest.Context(t), connect(t, url)))(t).WALSuffices()
}

func TestCreateSlotRefused(t *testing.T) {
	for _, tt := range []struct {
		name, state string
		settings    []pgtest.Option
		prepare     []string
	}{
		{"slots exhausted", "53400",
			[]pgtest.Option{pgtest.Setting("wal_level", "logical"), pgtest.Setting("max_replication_slots", "1")},
			[]string{`SELECT pg_create_physical_replication_slot('other')`}},
		{"wal_level too low", "55000", []pgtest.Option{pgtest.Setting("wal_level", "replica")}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := pgtest.Start(t, tt.settings...)
			server.Exec(t, tt.prepare...)
			_, _, err := CreateSlot(pgtest.Context(t), replication(t, server.URL("postgres")), "s", 140000, SlotOptions{})
			if err == nil && walSuffices(t, server.URL("postgres")) {
				t.Skip("from PostgreSQL 19 on, wal_level = replica is enough")
			}
			if pgsql.State(err) != tt.state {
				t.Errorf("got %v, want SQLSTATE %s", err, tt.state)
			}
			wantConfig(t, err)
		})
	}
}
