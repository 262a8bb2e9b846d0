package admin

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// as runs do as a new role with the attributes, and the right to use the schema public, and
// as much of the database.
func (f *fixture) as(attributes, onDatabase string, do func()) {
	f.t.Helper()
	role := pgsql.Name(slotName(f.t))
	f.exec(`CREATE ROLE `+role+` LOGIN PASSWORD 'pw' `+attributes, `GRANT ALL ON SCHEMA public TO `+role,
		`GRANT `+onDatabase+` ON DATABASE `+pgsql.Name(f.conn.Config().Database)+` TO `+role)
	f.t.Cleanup(func() { f.exec(`DROP OWNED BY `+role, `DROP ROLE `+role) })
	owner := f.Source.URL
	f.Source.URL = asRole(owner, slotName(f.t), "pw")
	do()
	f.Source.URL = owner
}

// wantUntouched asserts that setup has made nothing.
func (f *fixture) wantUntouched() {
	f.t.Helper()
	var made int
	must.OK(f.t, f.conn.QueryRow(f.ctx(), `SELECT (SELECT count(*) FROM pg_class WHERE relname = 'outbox') + (SELECT count(*) FROM pg_publication)
		+ (SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1) + (SELECT count(*) FROM pg_roles WHERE rolname = 'cdc-not-made')`,
		f.Source.Slot).Scan(&made))
	if made > 0 {
		f.t.Errorf("setup has made %d objects", made)
	}
}

// Failure mode 161: setup changes nothing if a later step cannot be done.
func TestSetupWantsTheRightsFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		attributes, onDatabase string
		opts                   SetupOptions
		want, remedy           string
	}{
		"to make a slot":           {"", "CREATE", SetupOptions{}, "may not create slot", "WITH REPLICATION"},
		"to make the publication":  {"REPLICATION", "CONNECT", SetupOptions{}, "may not create it", "as the tables' owner"},
		"to make a role":           {"REPLICATION", "CREATE", SetupOptions{Role: "cdc-not-made"}, "permission denied", "as a superuser"},
		"a writer that is missing": {"REPLICATION", "CREATE", SetupOptions{Writer: "cdc-not-made"}, "does not exist", "correct --writer"},
	} {
		t.Run(name, func(t *testing.T) {
			f := empty(t)
			tt.opts.Schema = SchemaDebezium
			f.as(tt.attributes, tt.onDatabase, func() {
				steps, err := Setup(f.ctx(), f.Config, tt.opts)
				wantClass(t, err, failure.Config, "nothing was changed", tt.want)
				must.Contain(t, failure.RemedyOf(err), tt.remedy)
				wantSteps(t, steps)
			})
			f.wantUntouched()
			if cp := f.stored(); cp != nil {
				t.Errorf("setup has made the checkpoint %+v", cp)
			}
		})
	}
}

// Failure mode 161: a silent or refusing store ends setup before any change in
// PostgreSQL.
func TestSetupWantsTheStoreFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		store  func(f *fixture)
		class  failure.Class
		want   string
		remedy string
	}{
		"a file that cannot be written": {func(f *fixture) {
			file := filepath.Join(t.TempDir(), "file")
			must.OK(t, os.WriteFile(file, nil, 0o600))
			f.Checkpoint.Path = filepath.Join(file, "checkpoint.json")
		}, failure.Config, "not a directory", "writable for"},
		"Kafka does not answer": {func(f *fixture) {
			f.withKafka().Close()
		}, failure.Transient, "connection refused", "start a broker"},
		"a topic that may not be made": {func(f *fixture) {
			f.withKafka(kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "reads", "pw",
				kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "cdc-outbox.checkpoints", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationRead, Allow: true}))
			f.Sink.Kafka.SASL = sink.SASL{Mechanism: "PLAIN", Username: "reads", Password: "pw"}
		}, failure.Config, "AUTHORIZATION_FAILED", "--operation"},
		"a table that may not be written": {func(f *fixture) {
			f.exec(`CREATE TABLE cdc_outbox_checkpoints (key text PRIMARY KEY, epoch bigint NOT NULL, checkpoint jsonb NOT NULL)`)
			f.Checkpoint.Store, f.Checkpoint.Table = store.StorePostgres, "cdc_outbox_checkpoints"
		}, failure.Config, "lacks privileges on the checkpoint table", "GRANT SELECT, INSERT, UPDATE"},
		"a table that may not be made": {func(f *fixture) {
			f.exec(`CREATE SCHEMA closed`)
			f.Checkpoint.Store, f.Checkpoint.Table = store.StorePostgres, "closed.checkpoints"
		}, failure.Config, "permission denied for schema closed", "GRANT USAGE ON SCHEMA"},
		"the checkpoint of another slot": {func(f *fixture) {
			f.put(checkpoint.Checkpoint{LSN: 1, Slot: "another", SystemID: "1", Timeline: 1, Database: "d", SavedAt: time.Now(), Epoch: 1})
		}, failure.Config, "another connector", "checkpoint.key"},
	} {
		t.Run(name, func(t *testing.T) {
			f := empty(t)
			tt.store(f)
			f.as("REPLICATION CREATEROLE", "CREATE", func() {
				steps, err := Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium})
				wantClass(t, err, tt.class, "nothing was changed", tt.want)
				must.Contain(t, failure.RemedyOf(err), tt.remedy)
				wantSteps(t, steps)
			})
			f.wantUntouched()
		})
	}
}

// Failure mode 161: an impossible creation, grant or publication is noticed before any.
func TestSetupRehearses(t *testing.T) {
	second := pg.Table{Schema: "closed", Name: "outbox2"}
	for name, tt := range map[string]struct {
		prepare func(f *fixture)
		opts    SetupOptions
		want    string
	}{
		"a second table in a schema without the right": {func(f *fixture) {
			f.exec(`CREATE SCHEMA closed`)
			f.Source.Tables = append(f.Source.Tables, second)
		}, SetupOptions{}, "permission denied for schema closed"},
		"a function of messages in a schema without the right": {func(f *fixture) {
			f.exec(`CREATE SCHEMA closed`, `CREATE FUNCTION closed.outbox_emit(text, text, text, jsonb, jsonb, uuid) RETURNS pg_lsn LANGUAGE sql AS 'SELECT NULL::pg_lsn'`)
			f.Source.Mode = config.ModeMessage
		}, SetupOptions{}, "permission denied for schema closed"},
		"a publication of somebody else that lacks the table": {func(f *fixture) {
			f.exec(`CREATE PUBLICATION cdc_outbox`)
		}, SetupOptions{}, `publication "cdc_outbox" lacks`},
		"a table of somebody else, to grant rights on": {func(f *fixture) {
			f.exec(`CREATE SCHEMA closed`, `CREATE TABLE closed.outbox2 (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb)`,
				`CREATE PUBLICATION cdc_outbox FOR TABLE closed.outbox2`)
			f.Source.Tables = []pg.Table{second}
		}, SetupOptions{Writer: "pg_monitor"}, "permission denied for schema closed"},
		"a publication that cannot be read": {func(f *fixture) {
			f.exec(`CREATE TABLE events (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb)`,
				`CREATE PUBLICATION cdc_outbox FOR TABLE events WITH (publish = 'update')`)
			f.Source.Tables = []pg.Table{{Schema: "public", Name: "events"}}
		}, SetupOptions{}, "insert"},
		"a slot that may not be created": {func(f *fixture) {
			f.Source.Snapshot, f.Source.Create = config.SnapshotInitial, false
		}, SetupOptions{}, "source.create is false"},
	} {
		t.Run(name, func(t *testing.T) {
			f := empty(t)
			tt.prepare(f)
			tt.opts.Schema = SchemaDebezium
			f.as("REPLICATION", "CREATE", func() {
				steps, err := Setup(f.ctx(), f.Config, tt.opts)
				wantClass(t, err, failure.Config, "nothing was changed", tt.want)
				wantSteps(t, steps)
			})
			f.exec(`DROP PUBLICATION IF EXISTS cdc_outbox`)
			f.wantUntouched()
		})
	}
}

// A checkpoint table may be in a schema made by setup.
func TestSetupMakesTheSchemaOfTheCheckpointTable(t *testing.T) {
	f := empty(t)
	f.Source.Tables = []pg.Table{{Schema: "app", Name: "outbox"}}
	f.Checkpoint.Store, f.Checkpoint.Table = store.StorePostgres, "app.checkpoints"
	f.wantSetup(SetupOptions{Schema: SchemaDebezium}, "table created", "publication created", "checkpoint ready", "slot created")
	f.exec(dropSlot(f))
}

// A role with all the rights needs no superuser's.
func TestSetupByARoleThatMay(t *testing.T) {
	f := empty(t)
	f.as("REPLICATION", "CREATE", func() {
		f.wantSetup(SetupOptions{Schema: SchemaDebezium, Writer: "public"},
			"table created", "publication created", "checkpoint ready", "writer ready", "slot created")
	})
	f.exec(dropSlot(f))
}

// The next run reads the slot: adopt asks for the role's right before noting anything.
func TestAdoptWantsTheRightFirst(t *testing.T) {
	f := adoptable(t)
	f.as("", "CONNECT", func() {
		for _, yes := range []bool{false, true} {
			report, err := Adopt(f.ctx(), f.Config, AdoptOptions{Yes: yes})
			wantClass(t, err, failure.Config, "nothing was changed", "may not read slot")
			must.Contain(t, failure.RemedyOf(err), "WITH REPLICATION")
			if report != nil || f.stored() != nil {
				t.Errorf("%+v, checkpoint %+v", report, f.stored())
			}
		}
	})
}
