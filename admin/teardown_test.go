package admin

import (
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/config"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

func TestTeardown(t *testing.T) {
	for _, store := range []string{config.StoreFile, config.StorePostgres, config.StoreKafka, config.StoreNone} {
		t.Run(store, func(t *testing.T) {
			f := newFixture(t, pgtest.Shared(t).NewDatabase(t))
			f.withKafka()
			f.Checkpoint.Store = store
			f.setup()
			f.save()

			steps, err := Teardown(f.ctx(), f.Config, false)
			wantClass(t, err, failure.Config, "nothing was dropped")
			if store == config.StoreNone {
				wantSteps(t, steps, "slot would be dropped", "publication would be dropped", "checkpoint missing")
			} else {
				wantSteps(t, steps, "slot would be dropped", "publication would be dropped", "checkpoint would be dropped")
			}

			if _, err = Teardown(f.ctx(), f.Config, true); err != nil {
				t.Fatal(err)
			}
			if _, ok := f.slot(); ok || f.stored() != nil {
				t.Errorf("slot there: %v, checkpoint %v", ok, f.stored())
			}
			steps, err = Teardown(f.ctx(), f.Config, true)
			if err != nil {
				t.Fatal(err)
			}
			wantSteps(t, steps, "slot missing", "publication missing", "checkpoint missing")

			f.setup() // nothing is in the way of a new start
		})
	}
}

func TestTeardownRefusesAnActiveSlot(t *testing.T) {
	f := newFixture(t, pgtest.Shared(t).NewDatabase(t))
	f.setup()
	f.hold()
	_, err := Teardown(f.ctx(), f.Config, true)
	wantClass(t, err, failure.Config, "in use by pid", "cdc-outbox")
	if _, ok := f.slot(); !ok {
		t.Error("the slot is gone")
	}
	f.publication()
}

// Failure mode 52: a slot of somebody else that has the name stays, and so does
// all else, as the configuration is wrong.
func TestSlotOfSomebodyElseIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct{ create, words string }{
		"physical":         {`pg_create_physical_replication_slot($1)`, "is a physical slot"},
		"another plugin":   {`pg_create_logical_replication_slot($1, 'test_decoding')`, "test_decoding"},
		"another database": {`pg_create_logical_replication_slot($1, 'pgoutput')`, "belongs to database"},
		"two-phase":        {`pg_create_logical_replication_slot($1, 'pgoutput', false, true)`, "two_phase"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, pgtest.Shared(t).NewDatabase(t))
			f.setup()
			f.save()
			f.exec(dropSlot(f))
			conn := f.conn
			if name == "another database" {
				conn = newFixture(t, pgtest.Shared(t).NewDatabase(t)).conn
			}
			if _, err := conn.Exec(f.ctx(), `SELECT `+c.create, f.Source.Slot); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.exec(dropSlot(f)) })
			before, _ := f.slot()

			_, err := Teardown(f.ctx(), f.Config, true)
			wantClass(t, err, failure.Config, c.words)
			_, err = AcceptGap(f.ctx(), f.Config, GapOptions{Yes: true})
			wantClass(t, err, failure.Config, c.words)
			_, err = Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium})
			wantClass(t, err, failure.Config, c.words)
			if now, ok := f.slot(); !ok || now.Database != before.Database || now.Plugin != before.Plugin || f.stored() == nil {
				t.Errorf("the slot was %+v and is %+v, the checkpoint %v", before, now, f.stored())
			}
			f.publication()
		})
	}
}

// A publication can only be dropped by its owner, which the connector's role
// need not be.
func TestTeardownByARoleThatOwnsNothing(t *testing.T) {
	const role = "cdc teardown"
	f := newFixture(t, pgtest.Shared(t).NewDatabase(t))
	f.setup()
	f.exec(`DROP ROLE IF EXISTS "`+role+`"`, `CREATE ROLE "`+role+`" LOGIN REPLICATION PASSWORD 'pw'`)
	owner := f.Source.URL
	f.Source.URL = asRole(owner, role, "pw")
	steps, err := Teardown(f.ctx(), f.Config, true)
	wantClass(t, err, failure.Config, `drop publication "cdc_outbox"`)
	wantSteps(t, steps, "slot dropped")
	if want := `DROP PUBLICATION "cdc_outbox";`; !strings.Contains(failure.RemedyOf(err), want) {
		t.Errorf("remedy %q has no %s", failure.RemedyOf(err), want)
	}

	f.Source.URL = owner
	if _, err := Teardown(f.ctx(), f.Config, true); err != nil {
		t.Errorf("again, as the owner: %v", err)
	}
}
