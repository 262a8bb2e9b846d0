package admin

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func TestSetup(t *testing.T) {
	for _, schema := range []Schema{SchemaDebezium, SchemaSnake} {
		t.Run(string(schema), func(t *testing.T) {
			f := newFixture(t, pgtest.Shared(t).NewDatabase(t))
			opts := SetupOptions{Schema: schema}

			steps, err := Setup(f.ctx(), f.Config, opts)
			if err != nil {
				t.Fatal(err)
			}
			wantSteps(t, steps, "table created", "publication created", "checkpoint ready", "slot created")

			steps, err = Setup(f.ctx(), f.Config, opts)
			if err != nil {
				t.Fatal(err)
			}
			wantSteps(t, steps, "table exists", "publication exists", "checkpoint ready", "slot exists")
			if r := Check(f.ctx(), f.Config); r.Err() != nil {
				t.Errorf("check after setup: %+v", r.Findings)
			}
		})
	}
}

// The columns are those that the configuration names, and the router finds all
// of them.
func TestSetupFollowsTheConfiguration(t *testing.T) {
	f := newFixture(t, pgtest.Shared(t).NewDatabase(t))
	f.Source.Tables = []pg.Table{{Schema: "Événements", Name: "Out Box"}}
	f.Event.ID, f.Event.Key, f.Route.By = "event-id", "order", "Aggregate"
	f.Event.Timestamp, f.Event.SchemaVersion = "occurred_at", "v"
	f.Event.Additional = []string{"tenant:header", "shard:partition", "tenant:envelope:t"}
	f.Event.TombstoneOnEmptyPayload = true
	f.setup()

	rel, _, err := catalog.ReadColumns(f.ctx(), f.conn, f.Source.Tables[0])
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range rel.Columns {
		names = append(names, c.Name)
	}
	want := []string{"event-id", "Aggregate", "order", "type", "payload", "headers", "v", "occurred_at", "tenant", "shard", "created_at"}
	if !slices.Equal(names, want) {
		t.Errorf("columns %v, want %v", names, want)
	}
	router, err := transform.New(f.Event, f.Route)
	if err != nil {
		t.Fatal(err)
	}
	if err := router.Bind(rel); err != nil {
		t.Error(err)
	}
	f.exec(`INSERT INTO "Événements"."Out Box" ("Aggregate", "order", type) VALUES ('a', 'b', 'c')`) // a NULL payload
}

func TestSetupRole(t *testing.T) {
	f := newFixture(t, pgtest.Shared(t).NewDatabase(t))
	const role = "cdc setup"
	t.Cleanup(func() { f.exec(`DROP OWNED BY "cdc setup"`, `DROP ROLE "cdc setup"`) })
	f.Source.Snapshot = "initial"
	opts := SetupOptions{Schema: SchemaDebezium, Role: role}
	steps, err := Setup(f.ctx(), f.Config, opts)
	if err != nil {
		t.Fatal(err)
	}
	wantSteps(t, steps, "table created", "publication created", "checkpoint ready", "role created", "slot created")

	steps, err = Setup(f.ctx(), f.Config, opts)
	if err != nil {
		t.Fatal(err)
	}
	wantSteps(t, steps, "table exists", "publication exists", "checkpoint ready", "role exists", "slot exists")

	f.exec(`ALTER ROLE "cdc setup" PASSWORD 'pw'`)
	f.Source.URL = asRole(f.Source.URL, role, "pw")
	if r := Check(f.ctx(), f.Config); r.Err() != nil {
		t.Errorf("check as the role: %+v", r.Findings)
	}
}

func TestSetupAddsATableToThePublication(t *testing.T) {
	f := newFixture(t, pgtest.Shared(t).NewDatabase(t))
	f.setup()
	f.Source.Tables = append(f.Source.Tables, pg.Table{Schema: "app", Name: "outbox"})
	steps, err := Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaSnake})
	if err != nil {
		t.Fatal(err)
	}
	wantSteps(t, steps, "table exists", "table created", "publication changed", "checkpoint ready", "slot exists")
}

func TestSetupRefuses(t *testing.T) {
	tests := []struct {
		name  string
		class failure.Class
		words string
		do    func(*fixture)
	}{
		{"to recreate a slot that a checkpoint remembers", failure.Loss, "is gone", func(f *fixture) {
			f.save()
			f.exec(`SELECT pg_drop_replication_slot('` + f.Source.Slot + `')`)
		}},
		{"a slot of another plugin", failure.Config, `output plugin "test_decoding"`, func(f *fixture) {
			f.exec(`SELECT pg_drop_replication_slot('`+f.Source.Slot+`')`,
				`SELECT pg_create_logical_replication_slot('`+f.Source.Slot+`', 'test_decoding')`)
		}},
		{"a physical slot", failure.Config, "physical", func(f *fixture) {
			f.exec(`SELECT pg_drop_replication_slot('`+f.Source.Slot+`')`,
				`SELECT pg_create_physical_replication_slot('`+f.Source.Slot+`')`)
			f.t.Cleanup(func() { f.exec(`SELECT pg_drop_replication_slot('` + f.Source.Slot + `')`) })
		}},
		{"a view", failure.Config, "cannot be published", func(f *fixture) {
			f.exec(`DROP TABLE outbox`, `CREATE VIEW outbox AS SELECT 1 AS id`)
		}},
		{"a publication without inserts", failure.Config, "does not publish inserts", func(f *fixture) {
			f.exec(`ALTER PUBLICATION cdc_outbox SET (publish = 'delete')`)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, pgtest.Shared(t).NewDatabase(t))
			f.setup()
			tt.do(f)
			_, err := Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium})
			wantClass(t, err, tt.class, tt.words)
		})
	}
}

// The script is what Setup does, so check finds nothing to complain about.
func TestScriptRunsInPsql(t *testing.T) {
	psql, err := exec.LookPath("psql")
	if err != nil {
		t.Skip("needs psql")
	}
	f := newFixture(t, pgtest.Shared(t).NewDatabase(t))
	t.Cleanup(func() { f.exec(`DROP OWNED BY "cdc script's"`, `DROP ROLE "cdc script's"`) })
	f.Source.Tables = []pg.Table{{Schema: "public", Name: "outbox"}, {Schema: "public", Name: `My "Schema".Outbox`}, {Schema: "app", Name: "outbox"}}
	f.Source.Snapshot = "initial"
	script, err := Script(f.Config, SetupOptions{Schema: SchemaSnake, Role: "cdc script's"})
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range []string{"first", "second"} {
		cmd := exec.CommandContext(f.ctx(), psql, "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-d", f.Source.URL.Reveal(), "-f", "-")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s run: %v\n%s\n%s", run, err, out, script)
		}
	}
	if r := Check(f.ctx(), f.Config); r.Err() != nil {
		t.Errorf("check: %+v", r.Findings)
	}
}

func TestStepsText(t *testing.T) {
	var b bytes.Buffer
	steps := Steps{
		{"table", "public.outbox", "created", "debezium columns"},
		{"slot", "s", "exists", ""},
	}
	if err := steps.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	const want = "" +
		"table  public.outbox  created  debezium columns\n" +
		"slot   s              exists\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestParseSchema(t *testing.T) {
	if s, err := ParseSchema(""); s != SchemaDebezium || err != nil {
		t.Errorf("got %q, %v", s, err)
	}
	_, err := ParseSchema("camel")
	wantClass(t, err, failure.Config, "camel")
}

// With source.snapshot: initial the first run publishes what is in the tables,
// and knows from setup that it is the first. Where that is gone, only an
// operator can tell.
func TestSetupPromisesTheSnapshot(t *testing.T) {
	f := newFixture(t, pgtest.Shared(t).NewDatabase(t))
	f.Source.Snapshot = config.SnapshotInitial
	f.setup()
	if cp := f.stored(); cp != nil {
		t.Errorf("setup saved the checkpoint %+v", cp)
	}
	f.setup() // once more
	wantFinding(t, Check(f.ctx(), f.Config), "checkpoint", OK, "none yet")

	if err := os.Remove(f.Checkpoint.Path); err != nil {
		t.Fatal(err)
	}
	const words = "there is no checkpoint"
	wantFinding(t, Check(f.ctx(), f.Config), "checkpoint", Fail, words)
	if err := Status(f.ctx(), f.Config).Err(); failure.ClassOf(err) != failure.Config || !strings.Contains(err.Error(), words) {
		t.Errorf("status = %v", err)
	}
	_, err := Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium})
	wantClass(t, err, failure.Config, words)

	if _, err := AcceptGap(f.ctx(), f.Config, GapOptions{Yes: true, Snapshot: true}); err != nil {
		t.Fatal(err)
	}
	if cp := f.stored(); cp == nil || !cp.Snapshot {
		t.Errorf("after setup --accept-gap --snapshot the checkpoint is %+v", cp)
	}
	wantFinding(t, Check(f.ctx(), f.Config), "checkpoint", OK, "fits the database")
}
