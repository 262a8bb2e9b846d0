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
