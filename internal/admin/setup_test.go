package admin

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Existing objects stay, missing ones are created, and the role may do
// everything the connector needs.
func TestSetup(t *testing.T) {
	for _, schema := range []Schema{SchemaDebezium, SchemaSnake} {
		t.Run(string(schema), func(t *testing.T) {
			f := empty(t)
			role := "cdc setup " + string(schema)
			t.Cleanup(func() { f.exec(`DROP OWNED BY `+pgsql.Name(role), `DROP ROLE `+pgsql.Name(role)) })
			f.Source.Snapshot = config.SnapshotInitial
			opts := SetupOptions{Schema: schema, Role: role}
			f.wantSetup(opts, "table created", "publication created", "checkpoint ready", "role created", "slot left")
			f.wantSetup(opts, "table exists", "publication exists", "checkpoint ready", "role exists", "slot left")
			f.Source.Tables = append(f.Source.Tables, pg.Table{Schema: "app", Name: "outbox"})
			f.wantSetup(opts, "table exists", "table created", "publication changed", "checkpoint ready", "role exists", "slot left")
			f.exec(`ALTER ROLE ` + pgsql.Name(role) + ` PASSWORD 'pw'`)
			f.Source.URL = asRole(f.Source.URL, role, "pw")
			f.wantNothingWrong()
		})
	}
}

// The columns are those of the configuration, and the router finds them all.
func TestSetupFollowsTheConfiguration(t *testing.T) {
	f := empty(t)
	f.Source.Tables = []pg.Table{{Schema: "Événements", Name: "Out Box"}}
	f.Event.ID, f.Event.Key, f.Route.By = "event-id", "order", "Aggregate"
	f.Event.Timestamp, f.Event.SchemaVersion = "occurred_at", "v"
	f.Event.Additional = []string{"tenant:header", "shard:partition", "tenant:envelope:t"}
	f.Event.TombstoneOnEmptyPayload = true
	f.setup()

	rel, _, err := catalog.ReadColumns(f.ctx(), f.conn, f.Source.Tables[0])
	must.OK(t, err)
	var names []string
	for _, c := range rel.Columns {
		names = append(names, c.Name)
	}
	columns := []string{"event-id", "Aggregate", "order", "type", "payload", "headers", "v", "occurred_at", "tenant", "shard", "created_at"}
	if !slices.Equal(names, columns) {
		t.Errorf("columns %v, want %v", names, columns)
	}
	router := must.Get(transform.New(f.Event, f.Route))(t)
	must.OK(t, router.Bind(rel))
	f.exec(`INSERT INTO "Événements"."Out Box" ("Aggregate", "order", type) VALUES ('a', 'b', 'c')`) // a NULL payload
}

func TestStepsText(t *testing.T) {
	var b bytes.Buffer
	steps := Steps{
		{"table", "public.outbox", "created", "debezium columns"},
		{"slot", "s", "exists", ""},
	}
	must.OK(t, steps.WriteText(&b))
	const want = "" +
		"table  public.outbox  created  debezium columns\n" +
		"slot   s              exists\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// With source.snapshot: initial the slot is left to the run publishing the
// snapshot of its position. Of a slot made by somebody else, without a
// checkpoint, only an operator can tell.
func TestSetupLeavesTheSlotToTheSnapshot(t *testing.T) {
	f := empty(t)
	f.Source.Snapshot = config.SnapshotInitial
	f.setup()
	if _, ok := f.slot(); ok {
		t.Error("there is a slot")
	}
	f.setup() // once more
	f.wantCheck("slot", OK, "run will create it")
	f.Source.Create = false
	finding := f.wantCheck("slot", Fail, "source.create is false")
	must.Contain(t, finding.Remedy, "set source.create to true")
	_, err := Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium})
	wantClass(t, err, failure.Config, "source.create is false")
	f.Source.Create = true

	f.exec(catalog.EnsureSlotSQL(f.Source.Slot))
	const words = "there is no checkpoint"
	f.wantCheck("checkpoint", Fail, words)
	if r := Status(f.ctx(), f.Config); failure.ClassOf(r.Err()) != failure.Config || !strings.Contains(r.Verdict, words) {
		t.Errorf("status = %v: %s", r.Err(), r.Verdict)
	}
	_, err = Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium})
	wantClass(t, err, failure.Config, words)

	must.Get(AcceptGap(f.ctx(), f.Config, GapOptions{Yes: true, Snapshot: true}))(t)
	if cp := f.stored(); cp == nil || !cp.Snapshot {
		t.Errorf("after setup --accept-gap --snapshot the checkpoint is %+v", cp)
	}
	f.wantCheck("checkpoint", OK, "fits the database")
}

// Setup takes no UPDATE and no DELETE from the application, nor in partitions
// made later, and check has nothing to say. Where a publication does take them,
// check says so.
func TestSetupLeavesUpdatesToTheApplication(t *testing.T) {
	const columns = `aggregatetype text, aggregateid text, type text, payload jsonb, n int DEFAULT 1`
	for name, tt := range map[string]struct {
		version int
		tables  []string
		after   []string
		update  bool // published
	}{
		"a key that is checked at the commit": {14, []string{`CREATE TABLE outbox (id uuid PRIMARY KEY DEFERRABLE, ` + columns + `)`}, nil, false},
		"a partitioned table whose identity is the whole row": {14, []string{
			`CREATE TABLE outbox (id uuid, ` + columns + `) PARTITION BY LIST (n)`, `CREATE TABLE part PARTITION OF outbox FOR VALUES IN (1)`,
			`ALTER TABLE outbox REPLICA IDENTITY FULL`, `ALTER TABLE part REPLICA IDENTITY FULL`,
		}, []string{`CREATE TABLE later PARTITION OF outbox DEFAULT`}, false},
		"a partition that has none": {14, []string{
			`CREATE TABLE outbox (id uuid, ` + columns + `, PRIMARY KEY (id, n)) PARTITION BY LIST (n)`, `CREATE TABLE part PARTITION OF outbox FOR VALUES IN (1)`,
			`ALTER TABLE part REPLICA IDENTITY NOTHING`,
		}, nil, false},
		"a partitioned table with a key": {14, []string{
			`CREATE TABLE outbox (id uuid, ` + columns + `, PRIMARY KEY (id, n)) PARTITION BY LIST (n)`, `CREATE TABLE part PARTITION OF outbox FOR VALUES IN (1)`,
		}, []string{`CREATE TABLE later PARTITION OF outbox DEFAULT`}, true},
		"a generated column in the key": {18, []string{
			`CREATE TABLE outbox (id uuid, ` + columns + `, g int GENERATED ALWAYS AS (n * 2) STORED, PRIMARY KEY (id, g))`}, nil, false},
		"a generated column in a whole row": {18, []string{
			`CREATE TABLE outbox (id uuid, ` + columns + `, g int GENERATED ALWAYS AS (n * 2) STORED)`, `ALTER TABLE outbox REPLICA IDENTITY FULL`}, nil, false},
		"a generated column beside the key": {18, []string{
			`CREATE TABLE outbox (id uuid PRIMARY KEY, ` + columns + `, g int GENERATED ALWAYS AS (n * 2) STORED)`}, nil, true},
		"an ordinary table": {14, []string{`CREATE TABLE outbox (id uuid PRIMARY KEY, ` + columns + `)`}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := empty(t)
			if server := must.Get(catalog.ReadServer(f.ctx(), f.conn))(t); server.Major() < tt.version {
				t.Skipf("needs PostgreSQL %d", tt.version)
			}
			f.exec(tt.tables...)
			f.setup()
			f.wantNothingWrong("partitions public.outbox")
			f.exec(tt.after...)
			f.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, n) SELECT gen_random_uuid(), 'order', '1', 'Placed', 1`,
				`UPDATE outbox SET aggregateid = '2'`)
			if len(tt.after) > 0 {
				f.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, n) SELECT gen_random_uuid(), 'order', '1', 'Placed', 2`,
					`UPDATE outbox SET aggregateid = '2'`)
			}
			f.exec(`DELETE FROM outbox`)
			pub, _, err := catalog.ReadPublication(f.ctx(), f.conn, f.Source.Publication)
			must.OK(t, err)
			if pub.Update != tt.update {
				t.Errorf("updates are published: %v, want %v", pub.Update, tt.update)
			}
			if !tt.update {
				f.exec(`ALTER PUBLICATION cdc_outbox SET (publish = 'insert, update')`)
				finding := f.wantCheck("publication", Warn, "PostgreSQL refuses them to the application")
				remedy, _, _ := strings.Cut(finding.Remedy, " or ")
				f.exec(remedy)
				f.wantNothingWrong("partitions public.outbox")
			}
		})
	}
}

// A publication of all tables takes UPDATEs of other tables from the application.
func TestCheckNamesTablesWhoseUpdatesAreRefused(t *testing.T) {
	f := empty(t)
	f.exec(`CREATE PUBLICATION cdc_outbox FOR ALL TABLES`, `CREATE TABLE "no key" (n int)`, `CREATE TABLE keyed (n int PRIMARY KEY)`)
	f.setup()
	finding := f.wantCheck("publication", Warn, `refuses UPDATEs or DELETEs to the application: public."no key"`)
	if strings.Contains(finding.Detail, "keyed") {
		t.Errorf("it names a table that has a key: %s", finding.Detail)
	}
}

// A publication possibly read by another slot is named as such.
func TestSetupWarnsOfASharedPublication(t *testing.T) {
	f := sound(t)
	second := *f.Config
	second.Source.Slot += "_2"
	second.Checkpoint.Path += ".2"
	g := &fixture{Config: &second, t: t, conn: f.conn}
	steps := must.Get(Setup(g.ctx(), g.Config, SetupOptions{Schema: SchemaDebezium}))(t)
	t.Cleanup(func() { g.exec(dropSlot(g)) })
	if detail := steps[1].Detail; !strings.Contains(detail, "WARNING") || !strings.Contains(detail, f.Source.Slot) {
		t.Errorf("steps %v", steps)
	}
}

// The service writing events gets its rights, and the connector's role a
// password for its logins, both from setup and from the printed script.
func TestSetupForAWriterAndWithAPassword(t *testing.T) {
	for _, mode := range []string{config.ModeWAL, config.ModeMessage, config.ModePoll} {
		for _, how := range []string{"executed", "printed"} {
			t.Run(mode+" "+how, func(t *testing.T) {
				f := empty(t)
				f.Source.Mode = mode
				role, writer := slotName(t)+" role", slotName(t)+" writer"
				f.exec(`CREATE ROLE ` + pgsql.Name(writer) + ` LOGIN PASSWORD 'pw'`)
				t.Cleanup(func() {
					for _, r := range []string{role, writer} {
						f.exec(`DROP OWNED BY `+pgsql.Name(r), `DROP ROLE `+pgsql.Name(r))
					}
				})
				opts := SetupOptions{Schema: SchemaDebezium, Role: role, Writer: writer, Password: `p@ss/w#1 'x\y`}
				if how == "executed" {
					must.Get(Setup(f.ctx(), f.Config, opts))(t)
				} else {
					psql, err := exec.LookPath("psql")
					if err != nil {
						t.Skip("needs psql")
					}
					f.psql(psql, opts)
				}
				for _, login := range []struct{ role, password string }{{role, opts.Password.Reveal()}, {writer, "pw"}} {
					conn, err := catalog.Connect(f.ctx(), asRole(f.Source.URL, login.role, login.password).Reveal())
					if err != nil {
						t.Fatalf("%s: %v", login.role, err)
					}
					if login.role == writer {
						application := &fixture{Config: f.Config, t: t, conn: conn}
						application.exec("RESET search_path")
						application.insert("order", "1", "{}")
						if mode == config.ModeMessage {
							must.Get(conn.Exec(f.ctx(), `SELECT outbox_emit('order', '1', 'Placed', '{}')`))(t)
						}
					}
					catalog.Close(conn)
				}
			})
		}
	}
	_, err := Setup(empty(t).ctx(), sound(t).Config, SetupOptions{Schema: SchemaDebezium, Writer: "nobody"})
	wantClass(t, err, failure.Config, "nobody")
}

// A column filled by a sequence asks the writer for the right to the sequence,
// too, unless the column is an identity.
func TestSetupGrantsTheWriterWhatFillsColumns(t *testing.T) {
	f := empty(t)
	f.exec(`CREATE SEQUENCE "Places"`,
		`CREATE TABLE outbox (id bigserial PRIMARY KEY, place bigint DEFAULT nextval('"Places"'), row bigint GENERATED ALWAYS AS IDENTITY,
			aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload jsonb)`)
	writer := slotName(t) + " writer"
	f.exec(`CREATE ROLE ` + pgsql.Name(writer) + ` LOGIN PASSWORD 'pw'`)
	t.Cleanup(func() { f.exec(`DROP OWNED BY `+pgsql.Name(writer), `DROP ROLE `+pgsql.Name(writer)) })
	must.Get(Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium, Writer: writer}))(t)
	conn := must.Get(catalog.Connect(f.ctx(), asRole(f.Source.URL, writer, "pw").Reveal()))(t)
	defer catalog.Close(conn)
	must.Get(conn.Exec(f.ctx(), `INSERT INTO public.outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', '1', 'Placed', '{}')`))(t)
}
