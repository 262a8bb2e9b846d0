package admin

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/sqltext"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
)

// as runs do as a new role with the attributes, which may use the schema public, and as
// much of the database.
func (f *fixture) as(attributes, onDatabase string, do func()) {
	f.t.Helper()
	role := sqltext.Name(slotName(f.t))
	f.exec(`CREATE ROLE `+role+` LOGIN PASSWORD 'pw' `+attributes, `GRANT ALL ON SCHEMA public TO `+role,
		`GRANT `+onDatabase+` ON DATABASE `+sqltext.Name(f.conn.Config().Database)+` TO `+role)
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
	if cp := f.stored(); made > 0 || cp != nil {
		f.t.Errorf("setup has made %d objects, and the checkpoint %+v", made, cp)
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
		})
	}
}

// A role without superuser rights that may do all of it does.
func TestSetupByARoleThatMay(t *testing.T) {
	f := empty(t)
	f.as("REPLICATION", "CREATE", func() {
		f.wantSetup(SetupOptions{Schema: SchemaDebezium, Writer: "public"},
			"table created", "publication created", "checkpoint ready", "writer ready", "slot created")
	})
	f.exec(dropSlot(f))
}

// The next run reads the slot: adopt asks whether the role may, before it notes anything.
func TestAdoptWantsTheRightFirst(t *testing.T) {
	f := adoptable(t)
	f.as("", "CONNECT", func() {
		for _, yes := range []bool{false, true} {
			report, err := Adopt(f.ctx(), f.Config, yes)
			wantClass(t, err, failure.Config, "nothing was changed", "may not read slot")
			must.Contain(t, failure.RemedyOf(err), "WITH REPLICATION")
			if report != nil || f.stored() != nil {
				t.Errorf("%+v, checkpoint %+v", report, f.stored())
			}
		}
	})
}
