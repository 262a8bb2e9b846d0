package admin

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func (f *fixture) prepare(yes bool) (*PrepareReport, error) {
	return PrepareUpgrade(f.ctx(), f.Config, PrepareOptions{Yes: yes, Timeout: patience})
}

func (f *fixture) finish(yes bool) (*FinishReport, error) {
	return FinishUpgrade(f.ctx(), f.Config, AuditOptions{Timeout: patience, Notes: f.t.Output()}, yes)
}

func TestUpgradeIsPrepared(t *testing.T) {
	f := sound(t)
	f.forget()
	_, err := f.prepare(true)
	wantClass(t, err, failure.Config, "there is no checkpoint")
	f.save()
	_, err = f.finish(true)
	must.OK(t, err) // the checkpoint is of this server

	f.insert("order", "1", "{}")
	r, err := f.prepare(true)
	wantClass(t, err, failure.Transient, "1 events that are not published")
	must.Contain(t, text(t, r), "not yet", "1. stop the writers")
	if f.stored().Upgrade != nil {
		t.Error("a marker is noted in spite of that")
	}

	f.exec(`SELECT pg_replication_slot_advance('` + f.Source.Slot + `', pg_current_wal_flush_lsn())`)
	before := f.save()
	f.insertElsewhere()
	_, err = f.prepare(false)
	wantClass(t, err, failure.Config, "nothing was changed")
	if f.stored().Upgrade != nil {
		t.Error("a marker is noted without yes")
	}
	for range 2 { // it can be repeated
		r = must.Get(f.prepare(true))(t)
		cp, slot := f.stored(), must.Get(readSlot(f))(t)
		if !r.Done || cp.Upgrade == nil || cp.LSN <= before.LSN || slot.ConfirmedFlush != cp.LSN {
			t.Errorf("%+v, checkpoint %+v, slot at %s", r, cp, slot.ConfirmedFlush)
		}
		must.Contain(t, text(t, r), "prepared", "upgrade finish")
	}
	f.wantCheck("checkpoint", OK, "fits the database")
	_, err = f.finish(true)
	wantClass(t, err, failure.Config, "the server of the preparation still")
}

// The commit of a checkpoint in the database is behind the marker, and the slot confirms
// that commit, too: pg_upgrade keeps no slot otherwise.
func TestUpgradeIsPreparedWithACheckpointInTheDatabase(t *testing.T) {
	f := sound(t)
	f.Checkpoint.Store = store.StorePostgres
	f.setup()
	f.save()
	for range 2 {
		must.Get(f.prepare(true))(t)
		var pending int
		must.OK(t, f.conn.QueryRow(f.ctx(), `SELECT count(*) FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', $2, 'messages', 'true')`,
			f.Source.Slot, f.Source.Publication).Scan(&pending))
		if slot := must.Get(readSlot(f))(t); pending != 0 || slot.ConfirmedFlush <= f.stored().LSN {
			t.Errorf("%d changes are left, the slot is at %s, the checkpoint at %s", pending, slot.ConfirmedFlush, f.stored().LSN)
		}
	}
}

// insertElsewhere commits a change that is no event.
func (f *fixture) insertElsewhere() {
	f.t.Helper()
	f.exec(`CREATE TABLE elsewhere (id int)`, `INSERT INTO elsewhere VALUES (1)`)
}

func readSlot(f *fixture) (catalog.Slot, error) {
	slot, _, err := catalog.ReadSlot(f.ctx(), f.conn, f.Source.Slot)
	return slot, err
}

func TestUpgradeIsPreparedOnceTheConnectorHasStopped(t *testing.T) {
	f := sound(t)
	f.save()
	f.insertElsewhere()
	defer f.confirming()()
	r, err := f.prepare(true)
	wantClass(t, err, failure.Config, "nothing was marked")
	must.Contain(t, text(t, r), "is in Kafka", "2. stop the connector")
}

func TestUpgradeNeedsASlotAndACheckpoint(t *testing.T) {
	f := sound(t)
	f.Checkpoint.Store = "none"
	_, err := f.prepare(true)
	wantClass(t, err, failure.Config, "checkpoint.store is none")
	_, err = f.finish(true)
	wantClass(t, err, failure.Config, "checkpoint.store is none")
	f.Source.Mode = config.ModePoll
	_, err = f.prepare(true)
	wantClass(t, err, failure.Config, "poll has not")
}

// The upgraded server is this one, with a checkpoint of another system identifier:
// the marker is what tells.
func TestUpgradeIsFinished(t *testing.T) {
	const other = "7000000000000000001"
	for name, c := range map[string]struct {
		change func(f *fixture, cp *checkpoint.Checkpoint)
		slot   string
		class  failure.Class
		words  string // of the error, or of the report
	}{
		"kept from 17":          {func(*fixture, *checkpoint.Checkpoint) {}, slotKept, failure.Config, "it is the old server, upgraded"},
		"before 17, none kept":  {func(f *fixture, cp *checkpoint.Checkpoint) { cp.Upgrade.Version = 150019; f.exec(dropSlot(f)) }, slotCreated, failure.Config, "it is the old server, upgraded"},
		"before 17, somebody's": {func(_ *fixture, cp *checkpoint.Checkpoint) { cp.Upgrade.Version = 160015 }, slotRecreated, failure.Config, "it is the old server, upgraded"},
		"an interrupted finish": {func(_ *fixture, cp *checkpoint.Checkpoint) { cp.Upgrade.Creating = true }, slotRecreated, failure.Config, "it is the old server, upgraded"},
		"a copy": {func(_ *fixture, cp *checkpoint.Checkpoint) {
			m := &cp.Upgrade.Marker
			m.Committed, m.RolledBack = m.RolledBack, m.Committed
		}, slotRecreated, failure.Config, "it has not the marker"},
		"a copy with fewer transactions": {func(_ *fixture, cp *checkpoint.Checkpoint) { cp.Upgrade.Marker.Committed[0] += 1 << 40 }, slotRecreated, failure.Config, "it has not the marker"},
		"an earlier copy":                {func(_ *fixture, cp *checkpoint.Checkpoint) { cp.LSN += 1 << 40 }, "", failure.Loss, "this server was copied earlier"},
		"not prepared":                   {func(_ *fixture, cp *checkpoint.Checkpoint) { cp.Upgrade = nil }, "", failure.Loss, "no upgrade was prepared"},
		"another database":               {func(_ *fixture, cp *checkpoint.Checkpoint) { cp.Database = "elsewhere" }, "", failure.Config, "correct the database"},
	} {
		t.Run(name, func(t *testing.T) {
			f := sound(t)
			f.save()
			must.Get(f.prepare(true))(t)
			later := int64(0)
			if c.slot == slotKept { // elsewhere nothing would tell whether it is published
				f.insert("order", "1", "{}")
				later = 1
			}
			cp := f.stored()
			cp.SystemID, cp.Upgrade.Version = other, 170011
			c.change(f, cp)
			f.put(*cp)

			plan, err := f.finish(false)
			if c.slot == "" {
				wantClass(t, err, c.class)
				if !strings.Contains(err.Error()+failure.RemedyOf(err), c.words) {
					t.Errorf("error %v, remedy %s", err, failure.RemedyOf(err))
				}
				return
			}
			wantClass(t, err, failure.Config, "nothing was changed")
			must.Contain(t, text(t, plan), c.words)
			if plan.Slot != c.slot || plan.Done || f.stored().SystemID != other {
				t.Errorf("the plan is %+v", plan)
			}
			if plan.Later != later {
				t.Errorf("%d rows are later than the marker, want %d", plan.Later, later)
			}
			done := must.Get(f.finish(true))(t)
			now := f.stored()
			if !done.Done || now.SystemID == other || now.Upgrade != nil || now.Epoch <= cp.Epoch || now.LSN != must.Get(readSlot(f))(t).ConfirmedFlush {
				t.Errorf("%+v, checkpoint %+v", done, now)
			}
			f.wantCheck("checkpoint", OK, "fits the database")
			if again := must.Get(f.finish(true))(t); !again.Known || again.Done {
				t.Errorf("again: %+v", again)
			}
		})
	}
}

// A checkpoint of another cluster says what to do after an upgrade, and only then.
func TestRunAsksForTheFinishOfAnUpgrade(t *testing.T) {
	cp := checkpoint.Checkpoint{LSN: 10, SystemID: "1", Upgrade: &checkpoint.Upgrade{At: time.Now()}}
	_, err := checkpoint.Verify(&cp, checkpoint.Server{SystemID: "2"})
	if remedy := failure.RemedyOf(err); failure.ClassOf(err) != failure.Loss || !strings.Contains(remedy, "upgrade finish") {
		t.Errorf("%v, remedy %s", err, remedy)
	}
	cp.Upgrade = nil
	if _, err := checkpoint.Verify(&cp, checkpoint.Server{SystemID: "2"}); strings.Contains(failure.RemedyOf(err), "upgrade") {
		t.Errorf("%v, remedy %s", err, failure.RemedyOf(err))
	}
}
