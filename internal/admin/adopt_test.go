package admin

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// adoptable is a fixture with a slot and a publication another program made.
func adoptable(t *testing.T) *fixture {
	f := empty(t)
	f.exec(SchemaDebezium.createTable(f.Config, f.Source.Tables[0]), `CREATE PUBLICATION dbz_publication FOR ALL TABLES`,
		`SELECT pg_create_logical_replication_slot('`+f.Source.Slot+`', 'pgoutput')`)
	f.Source.Publication, f.Source.Create = "dbz_publication", false
	return f
}

func TestAdopt(t *testing.T) {
	f := adoptable(t)
	plan, err := Adopt(f.ctx(), f.Config, AdoptOptions{})
	wantClass(t, err, failure.Config, "nothing was changed")
	if plan.Done || plan.Known || f.stored() != nil {
		t.Errorf("%+v, checkpoint %+v", plan, f.stored())
	}
	slot, _ := f.slot()
	done := must.Get(Adopt(f.ctx(), f.Config, AdoptOptions{Yes: true}))(t)
	if cp := f.stored(); !done.Done || cp == nil || cp.LSN != slot.ConfirmedFlush || cp.Adopted || done.From != cp.LSN.String() {
		t.Errorf("%+v, checkpoint %+v", done, cp)
	}
	must.Contain(t, text(t, done), "is taken over", done.From)
	f.wantNothingWrong("failover") // since 17: the other program made no failover slot
	again, err := Adopt(f.ctx(), f.Config, AdoptOptions{Yes: true})
	if err != nil || !again.Known || again.Done {
		t.Errorf("again: %+v, %v", again, err)
	}
	f.exec(dropSlot(f))
	_, err = Adopt(f.ctx(), f.Config, AdoptOptions{Yes: true})
	wantClass(t, err, failure.Loss, "is gone")
	_, err = Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium})
	wantClass(t, err, failure.Loss, "is gone")
}

// While the slot is read, its reader may go on.
func TestAdoptWhileItIsRead(t *testing.T) {
	f := adoptable(t)
	stream := f.open()
	done := must.Get(Adopt(f.ctx(), f.Config, AdoptOptions{Yes: true}))(t)
	if cp := f.stored(); done.Holder == nil || !cp.Adopted {
		t.Errorf("%+v, checkpoint %+v", done, cp)
	}
	must.Contain(t, text(t, done), "It is read by", "slot.drop.on.stop")
	f.leave(stream)
	f.exec(`SELECT pg_replication_slot_advance('` + f.Source.Slot + `', pg_current_wal_flush_lsn())`)
	f.wantCheck("checkpoint", OK, "fits the database")
}

// Exactly once and a snapshot need more knowledge of a slot than the position.
// Adoption is the decision.
func TestAdoptDecides(t *testing.T) {
	f := adoptable(t)
	f.Source.Snapshot = config.SnapshotInitial
	f.wantCheck("checkpoint", Fail, "there is no checkpoint")
	must.Get(Adopt(f.ctx(), f.Config, AdoptOptions{Yes: true}))(t)
	if cp := f.stored(); cp.Snapshot {
		t.Errorf("a snapshot is owed: %+v", cp)
	}
	f.wantCheck("checkpoint", OK, "fits the database")
}

func TestAdoptRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fixture)
		class  failure.Class
		words  []string
	}{
		"a slot that is not there":      {func(f *fixture) { f.exec(dropSlot(f)) }, failure.Config, []string{"does not exist", "nothing to take over"}},
		"a publication that is not":     {func(f *fixture) { f.Source.Publication = "nowhere" }, failure.Config, []string{`publication "nowhere" does not exist`}},
		"a table that is not published": {func(f *fixture) { f.exec(`CREATE PUBLICATION other`); f.Source.Publication = "other" }, failure.Config, []string{"is not in publication"}},
		"a slot of another plugin": {func(f *fixture) {
			f.exec(dropSlot(f), `SELECT pg_create_logical_replication_slot('`+f.Source.Slot+`', 'test_decoding')`)
		}, failure.Config, []string{"test_decoding"}},
		"no store": {func(f *fixture) { f.Checkpoint.Store = store.StoreNone }, failure.Config, []string{"checkpoint.store is none"}},
		"polling":  {func(f *fixture) { f.Source.Mode = config.ModePoll }, failure.Config, []string{"adopt needs a replication slot"}},
		"another connector's checkpoint": {func(f *fixture) {
			cp := f.saveAt(1)
			cp.Slot, cp.Epoch = "other", cp.Epoch+1
			f.put(cp)
		}, failure.Config, []string{`is of slot "other"`}},
	} {
		t.Run(name, func(t *testing.T) {
			f := adoptable(t)
			c.change(f)
			report, err := Adopt(f.ctx(), f.Config, AdoptOptions{Yes: true})
			wantClass(t, err, c.class, c.words...)
			if report != nil {
				t.Errorf("%+v", report)
			}
		})
	}
}

// Poll mode has no slot, and no checkpoint to keep elsewhere.
func TestAdoptInPollMode(t *testing.T) {
	f := empty(t)
	f.Source.Mode, f.Checkpoint.Store = config.ModePoll, store.StoreNone
	_, err := Adopt(f.ctx(), f.Config, AdoptOptions{Yes: true})
	wantClass(t, err, failure.Config, "adopt needs a replication slot")
}

// Failure mode 182: the checkpoint of a slot read before is gone.
func TestCheckOfACheckpointThatVanished(t *testing.T) {
	f := sound(t)
	f.forget()
	f.wantCheck("checkpoint", OK, "none yet in file")
	stream := f.open()
	f.insert("order", "1", "{}")
	for must.Get(stream.Next(f.ctx()))(t).Kind != wal.Commit {
	}
	f.leave(stream)
	pgtest.Await(t, f.conn, `SELECT total_txns > 0 FROM pg_stat_replication_slots WHERE slot_name = $1`, f.Source.Slot)
	found := f.wantCheck("checkpoint", Warn, "was read before, and no checkpoint of it is there")
	must.Contain(t, found.Remedy, "deleted or emptied", "cdc-outbox adopt --yes")
}
