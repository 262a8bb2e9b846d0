package admin

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// A dry run creates nothing either.
func TestWithoutYesNoStoreIsCreated(t *testing.T) {
	f := sound(t)
	f.Checkpoint.Store = store.StorePostgres
	_, err := AcceptGap(f.ctx(), f.Config, GapOptions{})
	wantClass(t, err, failure.Config, "nothing was changed")
	_, err = SkipTransaction(f.ctx(), f.Config, 1, false)
	wantClass(t, err, failure.Config, "no checkpoint to note")
	var there bool
	if err := f.conn.QueryRow(f.ctx(), `SELECT to_regclass($1) IS NOT NULL`, f.Checkpoint.Table).Scan(&there); err != nil || there {
		t.Errorf("the checkpoint's table is there: %v, %v", there, err)
	}
}

// "Done" means that the next run goes on: a gap is not accepted with unreadable
// tables, the cause of another gap.
func TestAcceptGapWantsTablesThatCanBeRead(t *testing.T) {
	f := sound(t)
	before := f.save()
	f.exec(`ALTER PUBLICATION cdc_outbox DROP TABLE outbox`)
	for _, yes := range []bool{false, true} {
		_, err := AcceptGap(f.ctx(), f.Config, GapOptions{Yes: yes})
		wantClass(t, err, failure.Config, "before a gap is accepted", "is not in publication")
		if cp := f.stored(); cp.Epoch != before.Epoch {
			t.Errorf("the checkpoint is %+v", cp)
		}
	}
	f.exec(`ALTER PUBLICATION cdc_outbox ADD TABLE outbox`)
	if _, err := AcceptGap(f.ctx(), f.Config, GapOptions{Yes: true}); err != nil {
		t.Error(err)
	}
}

// Two servers may have databases and slots of the same names, and a single
// store.
func TestCheckpointOfAnotherConnectorIsLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*checkpoint.Checkpoint){
		"another server":                 func(cp *checkpoint.Checkpoint) { cp.SystemID = "1" },
		"another server, just beginning": func(cp *checkpoint.Checkpoint) { cp.SystemID, cp.Creating = "1", true },
		"another database":               func(cp *checkpoint.Checkpoint) { cp.Database = "other" },
		"another slot":                   func(cp *checkpoint.Checkpoint) { cp.Slot = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			f := sound(t)
			cp := f.save()
			change(&cp)
			cp.Epoch++
			f.put(cp)
			for _, yes := range []bool{false, true} {
				steps, err := Teardown(f.ctx(), f.Config, yes)
				wantClass(t, err, failure.Config, "nothing was dropped", "it belongs to slot")
				wantSteps(t, steps)
			}
			f.wantSlot()
			store := must.Get(wiring.OpenStore(f.ctx(), f.Config))(t)
			defer store.Close()
			if now, ok, err := store.Load(f.ctx()); !ok || err != nil || now.Epoch != cp.Epoch {
				t.Errorf("the checkpoint is %+v, %v", now, err)
			}
		})
	}
}

// Setup says the same as run, and does not advise to accept a false gap: the
// acceptance would take the checkpoint from its connector.
func TestSetupNamesTheOtherServer(t *testing.T) {
	f := sound(t)
	cp := f.save()
	cp.SystemID, cp.Epoch = "1", cp.Epoch+1
	f.put(cp)
	for _, slot := range []string{"there", "missing"} {
		_, err := Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium})
		wantClass(t, err, failure.Loss, "wrong database cluster")
		if _, ok := f.slot(); ok != (slot == "there") {
			t.Errorf("the slot is there: %v", ok)
		}
		if slot == "there" {
			f.exec(dropSlot(f))
		}
	}
}

// A broker takes a checkpoint and does not answer: every write has an end.
func TestWriteToAStoreThatIsSilentEnds(t *testing.T) {
	for name, write := range map[string]func(*fixture) error{
		"accept-gap": func(f *fixture) error {
			_, err := AcceptGap(f.ctx(), f.Config, GapOptions{Yes: true})
			return err
		},
		"teardown": func(f *fixture) error {
			_, err := Teardown(f.ctx(), f.Config, true)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := empty(t)
			c := f.withKafka()
			f.setup()
			f.save()
			storePatience = time.Second
			defer func() { storePatience = 20 * time.Second }()
			c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				return nil, nil, true // no answer at all
			})
			wantClass(t, write(f), failure.Transient, "has not answered for 1s")
			f.wantSlot()
		})
	}
}

// A row written under the table's former name is an event of ours, as for run.
func TestSkipTransactionOfATableThatHadAnotherName(t *testing.T) {
	f := sound(t)
	before := f.save()
	const good = ` (aggregatetype, aggregateid, type, payload) VALUES ('order', '1', 'Placed', '{}')`
	f.exec(`ALTER TABLE outbox RENAME TO renamed`, `INSERT INTO renamed`+good, `INSERT INTO renamed`+strings.Replace(good, "'1'", "''", 1),
		`ALTER TABLE renamed RENAME TO outbox`)
	commits := f.commits(2)
	before.LSN, before.Landmark = commits[1].Commit, commits[0] // as after the stop at the bad event
	before.Scope = checkpoint.Scope([]pg.Table{{Schema: "public", Name: "outbox"}}, false, "")
	before.Epoch++
	f.put(before)
	done := must.Get(SkipTransaction(f.ctx(), f.Config, commits[1].Commit, true))(t)
	if cp := f.stored(); done.Total != 1 || !cp.Skip.Same(commits[1]) {
		t.Errorf("done %+v, checkpoint %+v", done, cp)
	}
}

// A restored log has grown past the checkpoint, so positions do not tell. check
// says the same as run, and run would not start.
func TestCheckReadsTheLogBehindTheCheckpoint(t *testing.T) {
	f := sound(t)
	cp := f.save()
	f.insert("order", "1", "{}")
	f.insert("order", "2", "{}")
	commits := f.commits(2)
	cp.LSN, cp.Landmark = commits[1].Commit, commits[0]
	cp.Scope = checkpoint.Scope([]pg.Table{{Schema: "public", Name: "outbox"}}, false, "")
	cp.Epoch++
	f.put(cp)
	f.wantCheck("checkpoint", OK, "its log is the one that was read")
	cp.Landmark.XID++ // as of another log
	cp.Epoch++
	f.put(cp)
	f.wantCheck("checkpoint", Fail, "the server's log is not the one that was read up to")
	// The server frees a slot a moment after hearing of the connection's end.
	await.Until(t, "the slot to be free", func() bool { slot, _ := f.slot(); return !slot.Active })
	if slot, _ := f.slot(); slot.ConfirmedFlush >= cp.LSN {
		t.Errorf("check left the slot %+v", slot)
	}
}

// Failure mode 75. A row of a table that has the name only now is no event.
func TestSkipTransactionOfATableThatTookTheName(t *testing.T) {
	f := sound(t)
	f.exec(`DROP PUBLICATION cdc_outbox`, `CREATE PUBLICATION cdc_outbox FOR ALL TABLES`)
	before := f.save()
	before.Scope = checkpoint.Scope([]pg.Table{{Schema: "public", Name: "outbox"}}, false, "")
	before.Owned = checkpoint.Owned{{OID: must.Get(catalog.ReadTables(f.ctx(), f.conn, f.Source.Tables))(t)[0].OID}}
	before.Epoch++
	f.put(before)
	f.insert("order", "1", "{}")
	f.exec(`CREATE TABLE staged (LIKE outbox INCLUDING ALL)`, `INSERT INTO staged SELECT * FROM outbox`,
		`ALTER TABLE outbox RENAME TO outbox_old`, `ALTER TABLE staged RENAME TO outbox`)
	commits := f.commits(2)
	if report, err := SkipTransaction(f.ctx(), f.Config, commits[0].Commit, true); err != nil || report.Total != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	_, err := SkipTransaction(f.ctx(), f.Config, commits[1].Commit, true)
	wantClass(t, err, failure.Config, "no transaction with events commits at")
}

// An update refused by event.on_update: fatal can be passed over, and a decision
// in place of another says so.
func TestSkipTransactionWithAnUpdate(t *testing.T) {
	f := empty(t)
	f.Event.OnUpdate = transform.UpdateFatal
	f.setup()
	f.save()
	f.insert("order", "1", "{}")
	f.exec(`UPDATE outbox SET type = 'x'`)
	f.insert("order", "2", "{}")
	var update checkpoint.Landmark
	commits := f.commits(2)
	f.streamChanges(func(msg *wal.Message) bool {
		update = checkpoint.LandmarkOf(&msg.Row)
		return msg.Kind != wal.Update
	})
	done := must.Get(SkipTransaction(f.ctx(), f.Config, update.Commit, true))(t)
	if cp := f.stored(); done.Total != 1 || done.Events[0].Reason != reasonUpdate || done.Replaces != "" || !cp.Skip.Same(update) {
		t.Errorf("done %+v, checkpoint %+v", done, cp)
	}
	again, err := SkipTransaction(f.ctx(), f.Config, commits[1].Commit, true)
	if err != nil || again.Replaces != update.Commit.String() || !strings.Contains(text(t, again), "not passed over any more") {
		t.Errorf("%+v, %v, want the place of %s taken", again, err, update.Commit)
	}
}
