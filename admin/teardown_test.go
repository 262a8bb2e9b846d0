package admin

import (
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
