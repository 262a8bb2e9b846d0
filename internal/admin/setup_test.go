package admin

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/sqltext"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// What is there stays, what is missing is created, and the role may do all that
// the connector needs.
func TestSetup(t *testing.T) {
	for _, schema := range []Schema{SchemaDebezium, SchemaSnake} {
		t.Run(string(schema), func(t *testing.T) {
			f := empty(t)
			role := "cdc setup " + string(schema)
			t.Cleanup(func() { f.exec(`DROP OWNED BY `+sqltext.Name(role), `DROP ROLE `+sqltext.Name(role)) })
			f.Source.Snapshot = config.SnapshotInitial
			opts := SetupOptions{Schema: schema, Role: role}
			f.wantSetup(opts, "table created", "publication created", "checkpoint ready", "role created", "slot created")
			f.wantSetup(opts, "table exists", "publication exists", "checkpoint ready", "role exists", "slot exists")
			f.Source.Tables = append(f.Source.Tables, pg.Table{Schema: "app", Name: "outbox"})
			f.wantSetup(opts, "table exists", "table created", "publication changed", "checkpoint ready", "role exists", "slot exists")
			f.exec(`ALTER ROLE ` + sqltext.Name(role) + ` PASSWORD 'pw'`)
			f.Source.URL = asRole(f.Source.URL, role, "pw")
			f.wantNothingWrong()
		})
	}
}

// The columns are those that the configuration names, and the router finds all
// of them.
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

// With source.snapshot: initial the first run publishes what is in the tables,
// and knows from setup that it is the first. Where that is gone, only an
// operator can tell.
func TestSetupPromisesTheSnapshot(t *testing.T) {
	f := empty(t)
	f.Source.Snapshot = config.SnapshotInitial
	f.setup()
	if cp := f.stored(); cp != nil {
		t.Errorf("setup saved the checkpoint %+v", cp)
	}
	f.setup() // once more
	f.wantCheck("checkpoint", OK, "none yet")

	must.OK(t, os.Remove(f.Checkpoint.Path))
	const words = "there is no checkpoint"
	f.wantCheck("checkpoint", Fail, words)
	if err := Status(f.ctx(), f.Config).Err(); failure.ClassOf(err) != failure.Config || !strings.Contains(err.Error(), words) {
		t.Errorf("status = %v", err)
	}
	_, err := Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium})
	wantClass(t, err, failure.Config, words)

	must.Get(AcceptGap(f.ctx(), f.Config, GapOptions{Yes: true, Snapshot: true}))(t)
	if cp := f.stored(); cp == nil || !cp.Snapshot {
		t.Errorf("after setup --accept-gap --snapshot the checkpoint is %+v", cp)
	}
	f.wantCheck("checkpoint", OK, "fits the database")
}
