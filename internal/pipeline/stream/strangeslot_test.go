package stream

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

// Failure mode 52: a slot of the name, but never readable for an instance, is an error,
// also while somebody reads the slot. It is no reason to stand by.
func TestSlotOfSomebodyElse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ sql, text string }{
		"physical":       {`SELECT pg_create_physical_replication_slot($1)`, `is a physical slot`},
		"another plugin": {`SELECT pg_create_logical_replication_slot($1, 'test_decoding')`, `output plugin "test_decoding"`},
		"another plugin, in use": {`SELECT pg_create_logical_replication_slot($1, 'test_decoding', true)`,
			`output plugin "test_decoding"`},
		"temporary": {`SELECT pg_create_logical_replication_slot($1, 'pgoutput', true)`, `is temporary`},
		"two-phase": {`SELECT pg_create_logical_replication_slot($1, 'pgoutput', false, true)`, `two_phase`},
	} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			d.exec(`CREATE PUBLICATION cdc_outbox FOR TABLE outbox`)
			must.Get(d.conn.Exec(t.Context(), c.sql, d.opts.Slot))(t)
			d.run().wantEnd(failure.Config, c.text)
		})
	}
}

func TestSlotOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	d, other := sharedDatabase(t), sharedDatabase(t)
	other.opts.Slot = d.opts.Slot
	i := other.start(&fakeStore{}, &gate{topic: &topic{}}).streams()
	text := `belongs to database "` + other.text("SELECT current_database()") + `", not to "` + d.text("SELECT current_database()")

	d.start(&fakeStore{}, &gate{topic: &topic{}}).wantEnd(failure.Config, text)

	// An instance standing by when the slot appears does not wait for the slot.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	here := &source{opts: d.opts, intake: &intake{}, tables: &outboxTables{}, limits: usual, health: &Health{}, phase: firstPhase(), database: d.text("SELECT current_database()")}
	sql := must.Get(catalog.Connect(ctx, d.url))(t)
	defer catalog.Close(sql)
	if _, err := here.waitForSlot(ctx, sql); err != nil {
		t.Errorf("it waited for a slot that will never be ours: %v", err)
	}

	i.stop()
	d.start(&fakeStore{}, &gate{topic: &topic{}}).wantEnd(failure.Config, text)
}

// The remedy: from 18 on a slot can be told to leave two-phase commit alone.
func TestTwoPhaseSlotAfterItsRemedy(t *testing.T) {
	d := outbox(t)
	if d.text("SELECT (current_setting('server_version_num')::int >= 180000)::text") != "true" {
		t.Skip("two_phase of a slot can be altered from PostgreSQL 18 on")
	}
	d.exec(`CREATE PUBLICATION cdc_outbox FOR TABLE outbox`)
	d.exec(`SELECT pg_create_logical_replication_slot('` + d.opts.Slot + `', 'pgoutput', false, true)`)
	d.insert(2, 1)
	d.start(&fakeStore{}, &gate{topic: &topic{}}).wantEnd(failure.Config, `two_phase`)
	repl := must.Get(catalog.ConnectReplication(t.Context(), d.url))(t)
	defer catalog.Close(repl)
	must.Get(repl.Exec(t.Context(), `ALTER_REPLICATION_SLOT "`+d.opts.Slot+`" (TWO_PHASE false)`).ReadAll())(t)
	d.start(&fakeStore{}, d.gate).streams()
	d.arrive()
	d.wantOnce()
}

// Two instances with a checkpoint file on each machine: the spare would take over without
// the holder's checkpoint, or with an old checkpoint, and then report a loss. The spare
// notices while standing by.
func TestSpareWhoseHolderSavesElsewhere(t *testing.T) {
	for name, old := range map[string]bool{"no checkpoint here": false, "an old one here": true} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			d.opts.Checkpoint.Store, d.opts.Checkpoint.Path = store.StoreFile, "/var/lib/cdc-outbox/checkpoint"
			d.limits.elsewhere = time.Millisecond
			here, there, to := &fakeStore{}, &fakeStore{}, &topic{}
			if old {
				d.start(here, &gate{topic: to}).streams().stop()
			}
			holder := d.start(there, &gate{topic: to}).streams()
			spare := d.start(here, &gate{topic: to})
			d.insert(1, 1)
			eventually(t, "the end of the spare", func() bool {
				d.insert(1, 1) // the slot moves on
				if spare.ready() {
					t.Fatal("the spare is ready")
				}
				return spare.ended()
			})
			spare.wantEnd(failure.Config, "another instance, connected from .*, reads slot .* and saves its checkpoints where this one, on .*, does not see them")
			arrive(t, to, len(d.ids))
			holder.stop()
			wantOnce(t, to, d.ids)
		})
	}
}

// The slot goes to the fit spare, with any number of others waiting.
func TestAnUnfitSpareYields(t *testing.T) {
	d := outbox(t)
	holder := d.run().streams()
	d.publish(1, 1)
	var unfit []*instance
	for range 5 {
		i := d.start(&fakeStore{}, d.gate)
		i.unready("saves its checkpoints elsewhere")
		unfit = append(unfit, i)
	}
	spare := d.run()
	eventually(t, "the spare's readiness", spare.ready)
	holder.stop()
	spare.streams()
	d.publish(1, 1)
	for _, i := range unfit {
		if i.ready() {
			t.Error("an unfit spare is ready")
		}
		i.stop()
	}
	spare.stop()
	d.wantOnce()
}

// The reader goes while a spare compares itself with the reader: the spare does not know
// the result, and does not become ready. An orchestrator would stop the next good instance
// for the spare.
func TestAReaderThatHasGoneMakesNoSpareFit(t *testing.T) {
	d := outbox(t)
	holder := d.run().streams()
	pid := d.walsender()
	holder.stop()
	s := d.pipeline(Parts{Store: &fakeStore{}, Sink: d.gate, Log: zap.NewNop()}, &counts{}).source
	s.database = d.text("SELECT current_database()")
	var a spare
	must.OK(t, s.couldTakeOver(t.Context(), d.conn, int32(pid), &a))
	if a.fit {
		t.Error("fit, though the reader's checkpoints were not seen")
	}
}

// The holder saves before confirming: no moment looks like a save elsewhere.
func TestSpareThatSharesTheStoreStandsBy(t *testing.T) {
	d := outbox(t)
	d.limits.spareLook = 0
	holder := d.run()
	spare := d.run()
	eventually(t, "one of them to stream", func() bool { return holder.role() == session.Active || spare.role() == session.Active })
	if spare.role() == session.Active {
		holder, spare = spare, holder
	}
	eventually(t, "the spare's readiness", spare.ready)
	for range 60 {
		d.publish(1, 1)
		if !spare.ready() {
			t.Fatal("the spare is not ready")
		}
	}
	holder.stop()
	spare.streams().stop()
	d.wantOnce()
}

// A spare down all the time cannot notice. The reported loss names the other possible
// reason.
func TestLossWithACheckpointFileOfItsOwn(t *testing.T) {
	d := outbox(t)
	d.opts.Checkpoint.Store, d.opts.Checkpoint.Path = store.StoreFile, "/var/lib/cdc-outbox/checkpoint"
	here, there, to := &fakeStore{}, &fakeStore{}, &topic{}
	d.start(here, &gate{topic: to}).streams().stop()
	other := d.start(there, &gate{topic: to}).streams()
	d.insert(5, 1)
	arrive(t, to, len(d.ids))
	other.stop()
	d.start(here, &gate{topic: to}).wantEnd(failure.Loss, "advanced or recreated .* an instance on another machine that keeps its checkpoint in a file of its own")
}
