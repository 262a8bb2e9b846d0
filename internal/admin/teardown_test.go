package admin

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

func TestTeardown(t *testing.T) {
	for _, kind := range []string{store.StoreFile, store.StorePostgres, store.StoreKafka, store.StoreNone} {
		t.Run(kind, func(t *testing.T) {
			f := empty(t)
			f.withKafka()
			f.Checkpoint.Store = kind
			f.setup()
			f.save()

			steps, err := Teardown(f.ctx(), f.Config, false)
			wantClass(t, err, failure.Config, "nothing was dropped")
			if kind == store.StoreNone {
				wantSteps(t, steps, "checkpoint missing", "slot would be dropped", "publication would be dropped")
			} else {
				wantSteps(t, steps, "checkpoint would be dropped", "slot would be dropped", "publication would be dropped")
			}

			must.Get(Teardown(f.ctx(), f.Config, true))(t)
			if _, ok := f.slot(); ok || f.stored() != nil {
				t.Errorf("slot there: %v, checkpoint %v", ok, f.stored())
			}
			f.wantTeardown("checkpoint missing", "slot missing", "publication missing")

			f.setup() // nothing is in the way of a new start
		})
	}
}

// A publication possibly needed by somebody else stays, with the reason: its
// reader would stop with a loss.
func TestTeardownKeepsAPublicationOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		before []string
		do     func(*fixture)
		why    string
	}{
		"of a second connector": {nil, func(f *fixture) {
			f.exec(catalog.EnsureSlotSQL(f.Source.Slot + "_2"))
			f.t.Cleanup(func() { f.exec(`SELECT pg_drop_replication_slot('` + f.Source.Slot + `_2')`) })
		}, "_2"},
		"of all tables": {[]string{`CREATE PUBLICATION cdc_outbox FOR ALL TABLES`}, func(*fixture) {}, "all tables"},
		"of another table": {nil, func(f *fixture) {
			f.exec(`CREATE TABLE other (n int PRIMARY KEY)`, `ALTER PUBLICATION cdc_outbox ADD TABLE other`)
		}, "public.other"},
	} {
		t.Run(name, func(t *testing.T) {
			f := empty(t)
			f.exec(c.before...)
			f.setup()
			f.save()
			c.do(f)
			steps, err := Teardown(f.ctx(), f.Config, false)
			wantClass(t, err, failure.Config, "nothing was dropped")
			wantSteps(t, steps, "checkpoint would be dropped", "slot would be dropped", "publication kept")
			steps = must.Get(Teardown(f.ctx(), f.Config, true))(t)
			wantSteps(t, steps, "checkpoint dropped", "slot dropped", "publication kept")
			must.Contain(t, steps[2].Detail, c.why, `DROP PUBLICATION IF EXISTS "cdc_outbox"`)
			f.publication()
		})
	}
}

// A slot in use belongs to its reader, named by the refusal.
func TestActiveSlotIsLeftAlone(t *testing.T) {
	f := sound(t)
	f.save()
	f.hold()
	_, err := Teardown(f.ctx(), f.Config, true)
	wantClass(t, err, failure.Config, "in use by pid", "cdc-outbox")
	_, err = AcceptGap(f.ctx(), f.Config, GapOptions{Yes: true})
	wantClass(t, err, failure.Config, "in use by pid", "cdc-outbox")
	_, err = SkipTransaction(f.ctx(), f.Config, 1, true)
	wantClass(t, err, failure.Config, "in use by pid")
	f.wantAllThere()
}

// Failure mode 52: somebody else's slot of the name stays, and so does all
// else, as the configuration is wrong.
func TestSlotOfSomebodyElseIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct{ create, words string }{
		"physical":         {`pg_create_physical_replication_slot($1)`, "is a physical slot"},
		"another database": {`pg_create_logical_replication_slot($1, 'pgoutput')`, "belongs to database"},
		"temporary":        {`pg_create_logical_replication_slot($1, 'pgoutput', true)`, "is temporary"},
	} {
		t.Run(name, func(t *testing.T) {
			f := sound(t)
			f.save()
			f.exec(dropSlot(f))
			conn := f.conn
			if name == "another database" {
				conn = empty(t).conn
			}
			must.Get(conn.Exec(f.ctx(), `SELECT `+c.create, f.Source.Slot))(t)
			t.Cleanup(func() { f.exec(dropSlot(f)) })
			before, _ := f.slot()

			_, err := Teardown(f.ctx(), f.Config, true)
			wantClass(t, err, failure.Config, c.words)
			if before.Active && !strings.Contains(err.Error(), "it is in use by pid") {
				t.Errorf("error %q does not name the holder", err)
			}
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

// wantAllThere asserts that a teardown has dropped nothing.
func (f *fixture) wantAllThere() {
	f.t.Helper()
	f.wantSlot()
	if f.stored() == nil {
		f.t.Error("the checkpoint is gone")
	}
	f.publication()
}

// An impossible step keeps teardown from the others.
func TestTeardownByARoleThatMayNotDoAll(t *testing.T) {
	for name, c := range map[string]struct {
		attributes    string
		do            func(f *fixture, role string)
		words, remedy string
	}{
		"not the publication's owner": {"REPLICATION", func(*fixture, string) {}, `publication "cdc_outbox" can only be dropped by its owner`, "ALTER PUBLICATION"},
		"not allowed to replicate": {"", func(f *fixture, role string) {
			f.exec(`ALTER PUBLICATION cdc_outbox OWNER TO ` + pgsql.Name(role))
		}, "may not drop slot", "WITH REPLICATION"},
		"not allowed to delete the checkpoint": {"REPLICATION", func(f *fixture, role string) {
			f.exec(`ALTER PUBLICATION cdc_outbox OWNER TO ` + pgsql.Name(role))
			f.Checkpoint.Store = store.StorePostgres
			f.save()
			f.exec(`GRANT SELECT, INSERT, UPDATE ON ` + f.Checkpoint.Table + ` TO ` + pgsql.Name(role))
		}, "lacks privileges on the checkpoint table", "GRANT SELECT, DELETE"},
	} {
		t.Run(name, func(t *testing.T) {
			f := sound(t)
			f.save()
			role := slotName(t)
			f.exec(`CREATE ROLE `+pgsql.Name(role)+` LOGIN PASSWORD 'pw' `+c.attributes,
				`GRANT CREATE ON DATABASE `+pgsql.Name(f.conn.Config().Database)+` TO `+pgsql.Name(role))
			t.Cleanup(func() {
				f.exec(`DROP OWNED BY `+pgsql.Name(role), `DROP ROLE `+pgsql.Name(role))
			})
			c.do(f, role)
			owner := f.Source.URL
			for _, yes := range []bool{false, true} {
				f.Source.URL = asRole(owner, role, "pw")
				steps, err := Teardown(f.ctx(), f.Config, yes)
				f.Source.URL = owner
				wantClass(t, err, failure.Config, "nothing was dropped", c.words)
				wantSteps(t, steps)
				must.Contain(t, failure.RemedyOf(err), c.remedy)
				f.wantAllThere()
			}
			if _, err := Teardown(f.ctx(), f.Config, true); err != nil {
				t.Errorf("again, as the owner: %v", err)
			}
		})
	}
}

// With Kafka away nothing is dropped: a checkpoint without its slot would be a
// loss for the next run.
func TestTeardownWithoutKafka(t *testing.T) {
	f := empty(t)
	c := f.withKafka()
	f.setup()
	f.save()
	c.Close()
	steps, err := Teardown(f.ctx(), f.Config, true)
	wantClass(t, err, failure.Transient, "nothing was dropped", "Kafka topic cdc-outbox.checkpoints")
	wantSteps(t, steps)
	f.wantSlot()
	f.publication()
	must.Contain(t, failure.RemedyOf(err), "--set checkpoint.store=none")
}

// Whichever step fails, the next run does not take the rest for a loss, and a
// repetition drops the rest.
func TestTeardownFailsHalfWay(t *testing.T) {
	for name, half := range map[string]struct {
		fail func(*fixture, *kfake.Cluster) (fix func())
		done []string
	}{
		"at the checkpoint": {func(_ *fixture, c *kfake.Cluster) func() {
			return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1}).Remove
		}, nil},
		"at the slot, which is taken meanwhile": {func(f *fixture, c *kfake.Cluster) func() {
			taken := make(chan *wal.Stream, 1)
			c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				taken <- f.open()
				return nil, nil, false
			})
			return func() { f.leave(<-taken) }
		}, []string{"checkpoint dropped"}},
		"at the publication": {func(f *fixture, _ *kfake.Cluster) func() {
			f.exec(`CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$`,
				`CREATE EVENT TRIGGER refuse ON ddl_command_start WHEN TAG IN ('DROP PUBLICATION') EXECUTE FUNCTION refuse()`)
			return func() { f.exec(`DROP EVENT TRIGGER refuse`) }
		}, []string{"checkpoint dropped", "slot dropped"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := empty(t)
			c := f.withKafka()
			f.setup()
			f.save()
			fix := half.fail(f, c)
			steps, err := Teardown(f.ctx(), f.Config, true)
			if err == nil || !strings.Contains(failure.RemedyOf(err), "repeat it, which drops the rest") {
				t.Fatalf("error %v with remedy %q", err, failure.RemedyOf(err))
			}
			wantSteps(t, steps, half.done...)
			fix()
			if err := Status(f.ctx(), f.Config).Err(); failure.ClassOf(err) == failure.Loss {
				t.Errorf("the next run would take what is left for a loss: %v", err)
			}
			if steps, err = Teardown(f.ctx(), f.Config, true); err != nil {
				t.Fatalf("again: %v", err)
			}
			if _, ok := f.slot(); ok || f.stored() != nil {
				t.Errorf("slot there: %v, checkpoint %v, after %v", ok, f.stored(), steps)
			}
		})
	}
}
