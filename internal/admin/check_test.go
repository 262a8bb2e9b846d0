package admin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// find returns the finding of a name with the worst outcome.
func find(t *testing.T, r *CheckReport, name string) Finding {
	t.Helper()
	var found *Finding
	for i, f := range r.Findings {
		if f.Name == name && (found == nil || f.Outcome == Fail || f.Outcome == Warn && found.Outcome != Fail) {
			found = &r.Findings[i]
		}
	}
	if found == nil {
		t.Fatalf("no check %q in %+v", name, r.Findings)
	}
	return *found
}

func wantFinding(t *testing.T, r *CheckReport, name string, outcome Outcome, words string) Finding {
	t.Helper()
	f := find(t, r, name)
	if f.Outcome != outcome || !strings.Contains(f.Detail, words) {
		t.Errorf("%s: %s %q, want %s with %q", name, f.Outcome, f.Detail, outcome, words)
	}
	if outcome == Fail && f.Remedy == "" {
		t.Errorf("%s: a failure without a remedy: %s", name, f.Detail)
	}
	return f
}

// Each case breaks a sound setup in a single place.
func TestCheckFinds(t *testing.T) {
	for _, tt := range []struct {
		name    string
		do      func(*fixture)
		check   string
		outcome Outcome
		words   string
		fixes   bool // the remedy is SQL mending the fault
		since   int  // the first major version with the broken part
	}{
		{"nothing wrong", func(*fixture) {}, "slot", OK, "nobody is reading it", false, 14},
		{"no limit, the default", func(*fixture) {}, "postgresql.max_slot_wal_keep_size", Warn, "no limit", false, 14},
		{"missing table", func(f *fixture) { f.exec(`DROP TABLE outbox`) }, "table public.outbox", Fail, "does not exist", false, 14},
		{"missing column", func(f *fixture) { f.exec(`ALTER TABLE outbox DROP COLUMN aggregateid`) },
			"columns public.outbox", Fail, "no column", false, 14},
		{"wrong type", func(f *fixture) { f.Event.Timestamp = "payload" }, "columns public.outbox", Fail, "timestamptz", false, 14},
		{"publication without inserts", func(f *fixture) { f.exec(`ALTER PUBLICATION cdc_outbox SET (publish = 'update')`) },
			"publication", Fail, "does not publish inserts", true, 14},
		{"column list without the key", func(f *fixture) { f.exec(`ALTER PUBLICATION cdc_outbox SET TABLE outbox (id, aggregatetype, payload)`) },
			"publication", Fail, "aggregateid", true, 15},
		{"column list without an optional column", func(f *fixture) {
			f.exec(`ALTER PUBLICATION cdc_outbox SET TABLE outbox (id, aggregatetype, aggregateid, payload)`)
		}, "publication", Warn, "only these columns", false, 15},
		{"publication dropped beside its slot", func(f *fixture) { f.forget(); f.exec(`DROP PUBLICATION cdc_outbox`) },
			"publication", Fail, "never reach the slot", false, 14},
		{"no replica identity", func(f *fixture) { f.exec(`ALTER TABLE outbox DROP CONSTRAINT outbox_pkey`) },
			"publication", Warn, "no replica identity", false, 14},
		{"slot missing, to be created", func(f *fixture) { f.forget(); f.exec(dropSlot(f)) }, "slot", OK, "run will create it", false, 14},
		{"slot missing, not to be created", func(f *fixture) { f.forget(); f.exec(dropSlot(f)); f.Source.Create = false }, "slot", Fail, "source.create is false", false, 14},
		{"unlogged table", func(f *fixture) {
			f.exec(`DROP PUBLICATION cdc_outbox`, `CREATE PUBLICATION cdc_outbox FOR ALL TABLES`, `ALTER TABLE outbox SET UNLOGGED`)
		}, "table public.outbox", Fail, "cannot be published", false, 14},
		{"physical slot", func(f *fixture) {
			f.exec(dropSlot(f), `SELECT pg_create_physical_replication_slot('`+f.Source.Slot+`')`)
		}, "slot", Fail, "is a physical slot", false, 14},
		{"physical slot, and a checkpoint of the one before", func(f *fixture) {
			f.save()
			f.exec(dropSlot(f), `SELECT pg_create_physical_replication_slot('`+f.Source.Slot+`')`)
		}, "checkpoint", Skipped, "see slot", false, 14},
		{"table taken out", func(f *fixture) { f.save(); f.exec(`ALTER PUBLICATION cdc_outbox DROP TABLE outbox`) },
			"checkpoint", Fail, "is not in publication", false, 14},
		{"no synchronous standby", func(*fixture) {}, "postgresql.synchronous_standby_names", OK, "do not wait", false, 14},
		{"slot recreated", func(f *fixture) {
			f.save()
			f.exec(dropSlot(f), `SELECT pg_create_logical_replication_slot('`+f.Source.Slot+`', 'pgoutput')`)
		}, "checkpoint", Fail, "recreated", false, 14},
		{"slot read by another machine, with a file of its own", func(f *fixture) {
			f.save()
			f.insert("order", "1", "{}")
			f.exec(`SELECT pg_replication_slot_advance('` + f.Source.Slot + `', pg_current_wal_lsn())`)
		}, "checkpoint", Fail, "a file of its own", false, 14},
		{"slot in use, and no checkpoint", func(f *fixture) { f.hold() }, "checkpoint", Warn, "saves its own elsewhere", false, 14},
		{"checkpoint that fits", func(f *fixture) { f.save() }, "checkpoint", OK, "fits the database", false, 14},
		{"no checkpoint store", func(f *fixture) { f.Checkpoint.Store = store.StoreNone }, "checkpoint", Warn, "not noticed", false, 14},
		{"rows that cannot be published", func(f *fixture) { f.insert("order", "", "{}") }, "rows public.outbox", Warn, "null_key", false, 14},
		{"status too rare", func(f *fixture) { f.Source.StatusInterval *= 100 }, "postgresql.wal_sender_timeout", Fail, "status_interval", false, 14},
		{"retention, and nothing wrong", kept, "retention public.outbox", OK, "published rows go after 24h", false, 14},
		{"retention: no such column", func(f *fixture) { kept(f); f.exec(`ALTER TABLE outbox DROP COLUMN created_at`) }, "retention public.outbox", Fail, `no column "created_at"`, true, 14},
		{"retention: no time", func(f *fixture) { kept(f); f.Retention.Column = "payload" }, "retention public.outbox", Fail, "of type jsonb", false, 14},
		{"retention of partitions", func(f *fixture) { kept(f); partitioned(f) }, "retention public.outbox", OK, "published partitions go after 24h", false, 14},
		{"retention, partitioned by hash", func(f *fixture) { kept(f); repartitioned(f, `HASH (id)`) }, "retention public.outbox", Fail, "not by ranges of time", false, 14},
		{"retention, partitioned by list", func(f *fixture) { kept(f); repartitioned(f, `LIST (aggregatetype)`) }, "retention public.outbox", Fail, "not by ranges of time", false, 14},
		{"retention, partitioned by what is no time", func(f *fixture) { kept(f); repartitioned(f, `RANGE (id)`) }, "retention public.outbox", Fail, "not by ranges of time", false, 14},
		{"retention, partitioned by two columns", func(f *fixture) { kept(f); repartitioned(f, `RANGE (created_at, id)`) }, "retention public.outbox", Fail, "not by ranges of time", false, 14},
		{"retention, partitioned by an expression", func(f *fixture) { kept(f); repartitioned(f, `RANGE ((created_at AT TIME ZONE 'UTC'))`) }, "retention public.outbox", OK, "published partitions go", false, 14},
		{"retention with a default partition", func(f *fixture) { kept(f); partitioned(f); f.exec(`CREATE TABLE o_rest PARTITION OF outbox DEFAULT`) }, "retention public.outbox", Warn, "exclusive lock", false, 14},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := empty(t)
			if server := must.Get(catalog.ReadServer(f.ctx(), f.conn))(t); server.Major() < tt.since {
				t.Skipf("needs PostgreSQL %d", tt.since)
			}
			f.setup()
			tt.do(f)
			got := f.wantCheck(tt.check, tt.outcome, tt.words)
			if tt.fixes {
				_, sql, either := strings.Cut(got.Remedy, "or: ")
				if !either {
					sql = got.Remedy
				}
				f.exec(sql)
				f.wantCheck(tt.check, OK, "")
			}
		})
	}
}

// Failure mode 177. The log a slot keeps without a limit fills the disk.
func TestCheckWarnsOfMuchLog(t *testing.T) {
	f := sound(t)
	f.wantCheck("slot.wal", OK, "without a limit")
	was := muchRetained
	muchRetained = 0
	t.Cleanup(func() { muchRetained = was })
	must.Contain(t, f.wantCheck("slot.wal", Warn, "nothing limits that but the disk").Remedy, "cdc-outbox status", "exit code 3")
}

func dropSlot(f *fixture) string { return `SELECT pg_drop_replication_slot('` + f.Source.Slot + `')` }

func TestCheckOfAServerThatIsNotReady(t *testing.T) {
	server := pgtest.Start(t, pgtest.Setting("wal_level", "replica"), pgtest.Setting("max_replication_slots", "1"))
	server.Exec(t, `SELECT pg_create_physical_replication_slot('other')`)
	f := newFixture(t, server.URL("postgres"))
	r := Check(f.ctx(), f.Config)
	if server, err := catalog.ReadServer(f.ctx(), f.conn); err == nil && server.Major() >= 19 {
		wantFinding(t, r, "postgresql.wal_level", OK, "replica")
	} else {
		wantFinding(t, r, "postgresql.wal_level", Fail, "wal_level is replica")
	}
	wantFinding(t, r, "postgresql.slots", Fail, "all 1 replication slots are in use")
	wantFinding(t, r, "table public.outbox", Fail, "does not exist")
	wantFinding(t, r, "publication", OK, "run will create it")
	wantClass(t, errWithRemedy(r.Err()), failure.Config, "checks failed")
	steps, err := Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium})
	wantClass(t, err, failure.Config, "nothing was changed", "all 1 replication slots are in use")
	wantSteps(t, steps)
}

// With Patroni as the cluster's manager, check and setup say how to tell Patroni
// of the slot; a slot dropped by Patroni gets a single verdict naming Patroni.
func TestPatroniIsSeen(t *testing.T) {
	f := empty(t)
	theirs := must.Get(catalog.Connect(f.ctx(), f.Source.URL.Reveal()))(t)
	t.Cleanup(func() { catalog.Close(theirs) })
	must.Get(theirs.Exec(f.ctx(), `SET application_name = 'Patroni heartbeat'`))(t)

	lines := "slots: {" + f.Source.Slot + `: {type: logical, database: "` + f.conn.Config().Database + `", plugin: pgoutput}}`
	steps := must.Get(Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium}))(t)
	server := must.Get(catalog.ReadServer(f.ctx(), f.conn))(t)
	if made := steps[len(steps)-1]; server.Major() < 17 && !strings.Contains(made.Detail, lines) {
		t.Errorf("setup says %+v", made)
	}
	must.Contain(t, f.wantCheck("postgresql.patroni", Warn, "Patroni manages this cluster").Remedy, lines)

	f.save()
	f.exec(dropSlot(f))
	r := Check(f.ctx(), f.Config)
	wantFinding(t, r, "slot", Skipped, "see checkpoint")
	must.Contain(t, wantFinding(t, r, "checkpoint", Fail, "Patroni").Remedy, lines, "--accept-gap")
	status := Status(f.ctx(), f.Config)
	if failure.ClassOf(status.Err()) != failure.Loss {
		t.Errorf("status = %v", status.Err())
	}
	must.Contain(t, status.Verdict+status.Remedy, "is gone", "Patroni manages", lines)

	catalog.Close(theirs)
	pgtest.Await(t, f.conn, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'Patroni heartbeat')`)
	r = Check(f.ctx(), f.Config)
	if gone := wantFinding(t, r, "checkpoint", Fail, "is gone"); strings.Contains(gone.Detail+gone.Remedy, "Patroni") {
		t.Errorf("without Patroni: %+v", gone)
	}
}

func TestCheckAsAPoorRole(t *testing.T) {
	f := sound(t)
	f.exec(dropSlot(f), `DROP PUBLICATION cdc_outbox`, `CREATE ROLE poor LOGIN PASSWORD 'pw'`)
	t.Cleanup(func() { f.exec(`DROP ROLE poor`) })
	f.Source.URL = asRole(f.Source.URL, "poor", "pw")
	f.Source.Snapshot = config.SnapshotInitial

	r := Check(f.ctx(), f.Config)
	must.Contain(t, wantFinding(t, r, "rows public.outbox", Skipped, "its topics are not known").Remedy, `GRANT SELECT ON "public"."outbox" TO "poor";`)
	replication := wantFinding(t, r, "postgresql.replication", Fail, "role poor cannot")
	must.Contain(t, replication.Remedy, `ALTER ROLE "poor" WITH REPLICATION;`)
	wantFinding(t, r, "publication", Fail, "may not create it")
	f.Source.Snapshot, f.Errors.OnLoss = config.SnapshotNever, config.LossRepair
	f.wantCheck("privileges public.outbox", Fail, "compares the rows with Kafka, and the role may not read")
	f.exec(wantFinding(t, r, "privileges public.outbox", Fail, "may not read").Remedy)
	f.wantCheck("privileges public.outbox", OK, "for a repair")
	// Rows hidden by a policy would be missing from the snapshot without a word.
	f.exec(`ALTER TABLE outbox ENABLE ROW LEVEL SECURITY`)
	f.exec(f.wantCheck("privileges public.outbox", Fail, "would hide rows").Remedy)
	f.wantCheck("privileges public.outbox", OK, "")
	f.exec(`DROP OWNED BY poor`)
}
func TestCheckWarnsOfCommitsThatWait(t *testing.T) {
	server := pgtest.Start(t, pgtest.Setting("synchronous_standby_names", "FIRST 1 (*)"), pgtest.Setting("synchronous_commit", "local"))
	f := newFixture(t, server.NewDatabase(t))
	got := f.wantCheck("postgresql.synchronous_standby_names", Warn, "commits wait")
	must.Contain(t, got.Remedy, "application_name")
	f.Source.Visibility = config.VisibilityWait
	got = f.wantCheck("postgresql.synchronous_standby_names", Fail, "wait for ever")
	must.Contain(t, got.Remedy, "application_name")
}

func TestCheckWithoutServers(t *testing.T) {
	t.Parallel()
	f := empty(t)
	f.Source.URL = "postgres://nobody@127.0.0.1:1/none"
	f.Sink = config.Sink{Kafka: sink.DefaultOptions()}
	f.Sink.Kafka.Brokers = []string{"127.0.0.1:1"}
	r := Check(f.ctx(), f.Config)
	wantFinding(t, r, "postgresql", Skipped, "no connection")
	if got := find(t, r, "postgresql.connection"); got.Outcome != Fail {
		t.Errorf("got %+v", got)
	}
	wantFinding(t, r, "kafka.connection", Fail, "127.0.0.1:1")
}

// The broker answers, and names an address nobody can write to.
func TestCheckFindsAWrongAdvertisedListener(t *testing.T) {
	t.Parallel()
	f := empty(t)
	f.Source.URL = "postgres://nobody@127.0.0.1:1/none"
	f.Sink = config.Sink{Kafka: sink.DefaultOptions()}
	f.Sink.Kafka.Brokers = kafkatest.Start(t, kafkatest.Advertised("127.0.0.1:1")).Brokers
	f.wantCheck("kafka.connection", Fail, "not at 127.0.0.1:1")
}

func TestCheckNamesOpenTransactions(t *testing.T) {
	f := sound(t)
	other := newFixture(t, f.Source.URL.Reveal())
	other.exec(`BEGIN`)
	other.insert("order", "1", "{}")
	t.Cleanup(func() { other.exec(`ROLLBACK`) })

	list := must.Get(readTransactions(f.ctx(), f.conn))(t)
	found := false
	for _, tx := range list {
		found = found || tx.PID == int32(other.conn.PgConn().PID()) && tx.Age != nil
	}
	if !found {
		t.Errorf("the open transaction is not in %+v", list)
	}
}

func TestSplitByAge(t *testing.T) {
	young, old := blockingAge/2, blockingAge*2
	got, hidden := splitByAge([]catalog.Writer{{PID: 1, Age: &old}, {PID: 2, Age: &young}, {PID: 3}}, blockingAge)
	if len(got) != 1 || got[0].PID != 1 || hidden != 1 {
		t.Errorf("got %+v and %d hidden", got, hidden)
	}
}

// A readable place that is not writable is found before the first save. (A name
// leaving no room for the temporary file's: a superuser could write to a
// read-only directory.)
func TestCheckpointFileThatCannotBeWritten(t *testing.T) {
	f := empty(t)
	good := f.Checkpoint.Path
	f.Checkpoint.Path = filepath.Join(filepath.Dir(good), strings.Repeat("x", 250))
	steps, err := Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium})
	wantClass(t, err, failure.Config, "checkpoint.path", "cannot be written")
	wantSteps(t, steps) // and PostgreSQL was not changed
	if _, ok := f.slot(); ok {
		t.Error("setup made a slot that nobody can read")
	}
	f.wantCheck("checkpoint", Fail, "cannot be written")

	f.Checkpoint.Path = good
	f.setup()
	f.wantCheck("checkpoint", OK, "nothing was read of it yet")
	if left, err := os.ReadDir(filepath.Dir(good)); err != nil || len(left) != 1 {
		t.Errorf("check and setup left %v, %v", left, err)
	}
}

func TestCheckReportText(t *testing.T) {
	r := CheckReport{Findings: []Finding{
		{"slot", OK, "nobody is reading it", ""},
		{"publication", Fail, "table a.b is not in it", "ALTER PUBLICATION p ADD TABLE a.b;"},
		{"kafka", Skipped, "the sink is stdout", ""},
	}}
	const want = `ok       slot         nobody is reading it
skipped  kafka        the sink is stdout
fail     publication  table a.b is not in it
                   -> ALTER PUBLICATION p ADD TABLE a.b;

1 ok, 1 skipped, 0 warn, 1 fail: mend publication, and check again
`
	if got := text(t, &r); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// errWithRemedy lends the summary's error a remedy: the checks have their own.
func errWithRemedy(err error) error {
	return &failure.Error{Class: failure.ClassOf(err), Remedy: "see the checks", Err: err}
}

// Each verb tells a wrong publication in the configuration as such, and changes
// nothing.
func TestAMistakenPublication(t *testing.T) {
	f := sound(t)
	f.save()
	before, _ := f.slot()
	f.Source.Publication = "orders"
	f.wantCheck("checkpoint", Fail, `the one that was read is called "cdc_outbox", and nothing is lost`)
	report := Check(f.ctx(), f.Config)
	for _, found := range report.Findings {
		if found.Outcome == Fail && (found.Remedy != "did you mean source.publication: cdc_outbox?" || found.Name != "checkpoint") {
			t.Errorf("check finds %+v", found)
		}
	}
	status := Status(f.ctx(), f.Config)
	if failure.ClassOf(status.Err()) != failure.Config || status.Remedy != "did you mean source.publication: cdc_outbox?" {
		t.Errorf("status: %v, remedy %q", status.Err(), status.Remedy)
	}
	_, err := AcceptGap(f.ctx(), f.Config, GapOptions{Yes: true})
	wantClass(t, err, failure.Config, "the one that was read is called")
	_, err = Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium})
	wantClass(t, err, failure.Config, "the one that was read is called")
	if now, _ := f.slot(); now.ConfirmedFlush != before.ConfirmedFlush {
		t.Errorf("the slot moved from %s to %s", before.ConfirmedFlush, now.ConfirmedFlush)
	}
	f.Source.Publication = "cdc_outbox"
	f.wantCheck("checkpoint", OK, "fits the database")
}
