package admin

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// catalogs is the possible work of setup in a database, as text without the OIDs
// and names differing between two databases.
const catalogs = `
SELECT 'column ' || c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' ' || a.attidentity::text
       || ' ' || COALESCE(pg_get_expr(d.adbin, d.adrelid), '') || ' ' || COALESCE(a.attacl::text, '')
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE c.relkind IN ('r', 'p') AND c.relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('public', 'app')) AND a.attnum > 0
UNION ALL SELECT 'table ' || n.nspname || '.' || c.relname || ' ' || c.relkind::text || ' ' || COALESCE(c.relacl::text, '') || ' ' || COALESCE(c.reloptions::text, '')
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname IN ('public', 'app') AND c.relkind IN ('r', 'p')
UNION ALL SELECT 'schema ' || nspname || ' ' || COALESCE(nspacl::text, '') FROM pg_namespace WHERE nspname IN ('public', 'app')
UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname IN ('public', 'app')
UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname IN ('public', 'app')
UNION ALL SELECT 'publication ' || pubname || ' ' || puballtables || pubinsert || pubupdate || pubdelete || pubtruncate || pubviaroot FROM pg_publication
UNION ALL SELECT 'published ' || prrelid::regclass FROM pg_publication_rel
UNION ALL SELECT 'slot ' || (to_jsonb(s) - ARRAY['datoid', 'restart_lsn', 'confirmed_flush_lsn', 'database', 'catalog_xmin', 'inactive_since', 'safe_wal_size'])::text
  FROM pg_replication_slots s WHERE database = current_database()
UNION ALL SELECT 'role ' || rolname || ' ' || rolsuper || rolcanlogin || rolreplication || rolcreaterole || rolcreatedb || rolbypassrls || rolinherit
  FROM pg_roles WHERE rolname = $1
 ORDER BY 1`

// dump is the database's catalogs with slot and role under common names.
func (f *fixture) dump(role string) string {
	f.t.Helper()
	rows := must.Get(f.conn.Query(f.ctx(), catalogs, role))(f.t)
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		var line string
		must.OK(f.t, rows.Scan(&line))
		b.WriteString(line + "\n")
	}
	must.OK(f.t, rows.Err())
	return strings.NewReplacer(f.Source.Slot, "<slot>", role, "<role>").Replace(b.String())
}

// The printed SQL has the effect of setup, for any state of the database.
func TestScriptIsSetup(t *testing.T) {
	psql, err := exec.LookPath("psql")
	if err != nil {
		t.Skip("needs psql")
	}
	const columns = ` (id uuid NOT NULL, aggregatetype text, aggregateid text, type text, payload jsonb, created_at timestamptz NOT NULL)`
	for name, tt := range map[string]struct {
		before []string
		change func(*config.Config)
		want   string // a line of the dump
	}{
		"nothing is there": {nil, func(*config.Config) {}, "publication cdc_outbox falsetruetruefalsefalsefalse"},
		"no primary key":   {[]string{`CREATE TABLE outbox` + columns}, func(*config.Config) {}, "publication cdc_outbox falsetruefalsefalsefalsefalse"},
		"a whole row for an identity": {[]string{`CREATE TABLE outbox` + columns, `ALTER TABLE outbox REPLICA IDENTITY FULL`},
			func(*config.Config) {}, "publication cdc_outbox falsetruetruefalsefalsefalse"},
		"partitioned": {[]string{`CREATE TABLE outbox` + columns + ` PARTITION BY RANGE (created_at)`, `CREATE TABLE part PARTITION OF outbox DEFAULT`},
			func(*config.Config) {}, "publication cdc_outbox falsetruefalsefalsefalsetrue"},
		"two tables, one of them without": {[]string{`CREATE SCHEMA app`, `CREATE TABLE app.outbox` + columns},
			func(c *config.Config) {
				c.Source.Tables = append(c.Source.Tables, pg.Table{Schema: "app", Name: "outbox"})
			}, "publication cdc_outbox falsetruefalsefalsefalsefalse"},
		"a publication of another table": {[]string{`CREATE TABLE other (id int PRIMARY KEY)`, `CREATE PUBLICATION cdc_outbox FOR TABLE other WITH (publish = 'insert, update')`},
			func(*config.Config) {}, "published outbox"},
		"a publication of all tables": {[]string{`CREATE PUBLICATION cdc_outbox FOR ALL TABLES WITH (publish = 'insert')`},
			func(*config.Config) {}, "publication cdc_outbox truetruefalsefalsefalsefalse"},
		"a checkpoint in a table, and names that want quotes": {nil, func(c *config.Config) {
			c.Checkpoint.Store = store.StorePostgres
			c.Source.Tables = append(c.Source.Tables, pg.Table{Schema: "app", Name: `My "Out".Box`})
		}, "table public.cdc_outbox_checkpoints r"},
		"a snapshot and retention": {nil, func(c *config.Config) { c.Source.Snapshot, c.Retention.After = config.SnapshotInitial, 1<<50 }, "=rd/"},
		"a repair":                 {nil, func(c *config.Config) { c.Errors.OnLoss = config.LossRepair }, "=r/"},
		"names that look like the end of a string or a comment": {nil, func(c *config.Config) {
			c.Source.Tables = []pg.Table{{Schema: "public", Name: "line\nbreak $setup$ and $setup1$"}}
			c.Source.Publication = "of $setup$\nlines"
		}, "published \"line"},
		"polling, and such names": {nil, func(c *config.Config) {
			c.Source.Tables = []pg.Table{{Schema: "public", Name: "line\nbreak $setup$"}}
			c.Source.Mode, c.Source.Poll.Notify = config.ModePoll, "$notify$ $setup$"
		}, "CREATE TRIGGER"},
		"messages": {nil, func(c *config.Config) { c.Source.Mode, c.Source.Tables = config.ModeMessage, nil }, "publication cdc_outbox falsetruetruefalsefalsefalse"},
		"polling":  {nil, func(c *config.Config) { c.Source.Mode, c.Source.Poll.Notify = config.ModePoll, "outbox" }, "CREATE TRIGGER"},
	} {
		t.Run(name, func(t *testing.T) {
			var dumps [2]string
			for i, how := range []string{"executed", "printed"} {
				f := empty(t)
				f.Source.Slot = how + "_" + f.Source.Slot[:min(len(f.Source.Slot), 30)]
				role := "role's " + f.Source.Slot
				t.Cleanup(func() { f.exec(`DROP OWNED BY `+pgsql.Name(role), `DROP ROLE `+pgsql.Name(role)) })
				tt.change(f.Config)
				f.exec(tt.before...)
				opts := SetupOptions{Schema: SchemaDebezium, Role: role}
				if how == "executed" {
					if steps, err := Setup(f.ctx(), f.Config, opts); err != nil {
						t.Fatalf("%v after %v", err, steps)
					}
				} else {
					f.psql(psql, opts)
					f.psql(psql, opts) // changes nothing
				}
				dumps[i] = f.dump(role)
			}
			if dumps[0] != dumps[1] {
				t.Errorf("executed:\n%s\nprinted:\n%s", dumps[0], dumps[1])
			}
			if !strings.Contains(dumps[0], tt.want) {
				t.Errorf("no %q in\n%s", tt.want, dumps[0])
			}
		})
	}
}

// psql runs the printed script.
func (f *fixture) psql(psql string, opts SetupOptions) {
	f.t.Helper()
	script := must.Get(Script(f.Config, opts))(f.t)
	cmd := exec.CommandContext(f.ctx(), psql, "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-d", f.Source.URL.Reveal(), "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		f.t.Fatalf("%v\n%s\n%s", err, out, script)
	}
}

// A table is not added to a publication at the cost of the application's
// UPDATEs; a table without the columns of an event, or a view, gets no slot.
func TestSetupRefusesATable(t *testing.T) {
	for name, tt := range map[string]struct {
		before        []string
		words, remedy string
		wrong         string // forbidden in the remedy
	}{
		"without replica identity, for updates": {[]string{
			`CREATE TABLE other (id int PRIMARY KEY)`, `CREATE PUBLICATION cdc_outbox FOR TABLE other`,
			`CREATE TABLE outbox (id uuid, aggregatetype text, aggregateid text, type text, payload jsonb)`,
		}, "no replica identity", "SET (publish = 'insert')", "SET LOGGED"},
		"without payload": {[]string{`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text)`},
			"payload", "", "SET LOGGED"},
		"without inserts": {[]string{`CREATE PUBLICATION cdc_outbox WITH (publish = 'delete')`}, "does not publish inserts", "SET (publish", "SET LOGGED"},
		"a view":          {[]string{`CREATE VIEW outbox AS SELECT 1 AS id`}, "cannot be published", "in place of a view", "SET LOGGED"},
		"unlogged": {[]string{`CREATE UNLOGGED TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb)`},
			"cannot be published", "SET LOGGED", "in place of a view"},
	} {
		t.Run(name, func(t *testing.T) {
			f := empty(t)
			f.exec(tt.before...)
			steps, err := Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium})
			wantClass(t, err, failure.Config, tt.words)
			if remedy := failure.RemedyOf(err); !strings.Contains(remedy, tt.remedy) || strings.Contains(remedy, tt.wrong) {
				t.Errorf("remedy %q", remedy)
			}
			if _, ok := f.slot(); ok {
				t.Errorf("there is a slot after %v", steps)
			}
		})
	}
}
