package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// fakeRepairer takes the rows of the snapshot that are not in the topic for missing.
type fakeRepairer struct {
	d       *database
	asked   []Lacking
	looks   int   // comparisons only
	unread  error // of Readable
	unready error // of Ready
	unknown error // of Repair
	torn    error // of Repair, after the first event
}

func (r *fakeRepairer) Readable(context.Context, *pgx.Conn) error { return r.unread }

func (r *fakeRepairer) Ready(context.Context, *pgx.Conn) error { return r.unready }

func (r *fakeRepairer) Repair(ctx context.Context, conn *pgx.Conn, of Lacking, publish func(context.Context, []delivery.Item) error, observe func(func() RepairStatus)) (st RepairStatus, err error) {
	observe(func() RepairStatus { return RepairStatus{Missing: 1} })
	defer observe(nil)
	r.asked = append(r.asked, of)
	if publish == nil {
		r.looks++
	}
	if r.unknown != nil || publish == nil {
		return st, r.unknown
	}
	router := must.Get(transform.New(r.d.event, r.d.route))(r.d.t)
	table := pg.Table{Schema: "public", Name: "outbox"}
	rel, _, err := catalog.ReadSent(ctx, conn, table, r.d.opts.Publication)
	if err != nil {
		return st, err
	}
	charset, err := catalog.ReadCharset(ctx, conn)
	if err != nil {
		return st, err
	}
	var missing []delivery.Item
	err = catalog.ReadSnapshot(ctx, conn, catalog.Snapshot{Name: of.Snapshot, Table: table, Relation: rel, Charset: charset}, func(row *pg.Row) error {
		ev, err := router.Route(row)
		if !slices.Contains(r.d.topic.ids(), string(ev.ID)) {
			missing = append(missing, delivery.Item{Event: ev, Size: ev.Size()})
		}
		return err
	})
	for n := 0; n < len(missing) && err == nil; n++ {
		if err = publish(ctx, missing[n:n+1]); err == nil {
			st.Published++
			err = r.torn
		}
	}
	return st, err
}

// lossy is a database whose slot is lost once some events are published, and others not.
func lossy(t *testing.T) (*database, *fakeRepairer) {
	d := outbox(t)
	i := d.run().streams()
	d.publish(3, 1)
	i.stop()
	d.insert(2, 1)
	return d, &fakeRepairer{d: d}
}

func (d *database) repairing(r *fakeRepairer) *instance {
	return d.startWith(Parts{Store: d.store, Sink: d.gate, Repairer: r})
}

func (d *database) dropSlot() {
	d.t.Helper()
	eventually(d.t, "the drop of the slot", func() bool {
		_, err := d.conn.Exec(d.t.Context(), "SELECT pg_drop_replication_slot($1)", d.opts.Slot)
		return err == nil
	})
}

// advanceSlot moves the slot past everything.
func (d *database) advanceSlot() {
	d.t.Helper()
	eventually(d.t, "the advance of the slot", func() bool {
		_, err := d.conn.Exec(d.t.Context(), "SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())", d.opts.Slot)
		return err == nil
	})
}

func (d *database) slotAt() string {
	d.t.Helper()
	return d.text("SELECT coalesce(max(confirmed_flush_lsn)::text, 'none') FROM pg_replication_slots WHERE slot_name = '" + d.opts.Slot + "'")
}

// wantsOnce waits for all events, and wants each once.
func (d *database) wantsOnce() {
	d.t.Helper()
	eventually(d.t, "all events", func() bool { return len(d.topic.ids()) >= len(d.ids) })
	d.wantOnce()
}

// Failure mode 188.
func TestALossOfLogIsRepaired(t *testing.T) {
	for name, lose := range map[string]func(*database){"gone": (*database).dropSlot, "advanced": (*database).advanceSlot} {
		t.Run(name, func(t *testing.T) {
			d, r := lossy(t)
			lose(d)
			i := d.repairing(r).streams()
			d.insert(1, 1)
			d.wantsOnce()
			if cp, _, _ := d.store.Load(t.Context()); cp.Lost != nil {
				t.Errorf("the checkpoint has the loss still: %+v", cp.Lost)
			}
			i.stop()
			if of := r.asked[len(r.asked)-1]; !of.Known || of.Snapshot == "" {
				t.Errorf("asked for %+v", of)
			}
			i = d.run().streams() // nothing is left to be repaired
			i.stop()
		})
	}
}

// Rows from before the first start were never to be published, nor are they by a repair
// right after it, or right after another: already the first checkpoint of a slot knows
// the transactions before.
func TestTheFirstCheckpointOfASlotKnowsTheTransactionsBefore(t *testing.T) {
	d := outbox(t)
	r := &fakeRepairer{d: d}
	i := d.repairing(r).streams()
	wants := func() {
		t.Helper()
		if cp, _, err := d.store.Load(t.Context()); err != nil || cp.Horizon == 0 {
			t.Errorf("the horizon is %d, error %v", cp.Horizon, err)
		}
	}
	wants()
	d.publish(1, 1)
	i.stop()
	d.dropSlot()
	d.insert(1, 1)
	i = d.repairing(r).streams()
	d.wantsOnce()
	wants()
	i.stop()
}

// A slot with log is not dropped before it is known that the repair can do without.
func TestASlotWithLogIsKeptIfNoRepairCanMendTheLoss(t *testing.T) {
	d, r := lossy(t)
	d.advanceSlot()
	before := d.slotAt()
	r.unknown = failure.Lossf("look", "the topic is compacted")
	d.repairing(r).wantEnd(failure.Loss, `advanced .* errors.on_loss: repair cannot mend it: the topic is compacted`)
	if after := d.slotAt(); after != before {
		t.Errorf("the slot is at %s, and was at %s", after, before)
	}
	if r.looks != 1 || len(r.asked) != 1 || len(d.topic.ids()) != 3 {
		t.Errorf("%d looks, %d questions, %d events", r.looks, len(r.asked), len(d.topic.ids()))
	}
}

// Nor is one dropped, or made, that a repair would need rights for.
func TestALossIsNotRepairedWithoutRights(t *testing.T) {
	d, r := lossy(t)
	d.dropSlot()
	r.unready = failure.Configf("GRANT", "no right")
	i := d.repairing(r)
	i.wantEnd(failure.Config, `slot .* is gone, but was read up to .*; errors.on_loss: repair cannot begin: no right`)
	if remedy := failure.RemedyOf(i.err); remedy != "GRANT" || !checkpoint.LacksLog(i.err) {
		t.Errorf("remedy %q; a loss of log: %v", remedy, checkpoint.LacksLog(i.err))
	}
	d.wantNoSlot()
}

// A right that a repair would lack is told at the start, while nothing is lost.
func TestTheStartWarnsOfARightThatARepairLacks(t *testing.T) {
	const warning = "a loss could not be repaired"
	d, r := lossy(t)
	i := d.repairing(r).streams()
	i.stop()
	if n := i.says(warning); n != 0 {
		t.Errorf("%d warnings with the right", n)
	}
	r.unread = failure.Configf("GRANT", "no right")
	i = d.repairing(r).streams()
	d.wantsOnce()
	i.stop()
	if n := i.says(warning); n != 1 {
		t.Errorf("%d warnings", n)
	}
	if fields := i.logs.FilterMessageSnippet(warning).All()[0].ContextMap(); fields["remedy"] != "GRANT" || fields["error"] != "no right" {
		t.Errorf("%v", fields)
	}
}

// Where a repair could mend the loss, the remedy offers the repair first.
func TestALossOffersItsRepair(t *testing.T) {
	const offer = "`cdc-outbox run --set errors.on_loss=repair` makes a new slot"
	d, _ := lossy(t)
	d.dropSlot()
	for _, repairable := range []bool{true, false} {
		d.opts.Repairable = repairable
		i := d.run()
		i.wantEnd(failure.Loss, `is gone`)
		remedy := failure.RemedyOf(i.err)
		if at := strings.Index(remedy, offer); (at >= 0) != repairable || at > strings.Index(remedy, catalog.AcceptGap) || !strings.Contains(remedy, "`cdc-outbox repair --publish`") {
			t.Errorf("%v: %s", repairable, remedy)
		}
	}
}

// An interrupted repair begins again, with another slot: nobody has the first snapshot of
// the half-made one.
func TestAnInterruptedRepairBeginsAgain(t *testing.T) {
	d, r := lossy(t)
	d.dropSlot()
	r.torn = failure.Configf("repeat it", "interrupted")
	d.repairing(r).wantEnd(failure.Config, "interrupted")
	half := d.slotAt()
	cp, _, _ := d.store.Load(t.Context())
	if lost := cp.Lost; lost == nil || lost.Gap == nil || half == "none" {
		t.Fatalf("the slot is at %s, the checkpoint has the loss %+v", half, lost)
	}
	d.insert(1, 1) // in the half-made slot's log
	d.start(d.store, d.gate).wantEnd(failure.Loss, "is not accepted yet")
	r.torn = nil
	i := d.repairing(r).streams()
	d.wantsOnce()
	i.stop()
	if d.slotAt() == half {
		t.Error("the half-made slot was trusted")
	}
}

// A running pipeline hands the loss to the next.
func TestARunningPipelineIsRepairedByTheNext(t *testing.T) {
	d := outbox(t)
	r := &fakeRepairer{d: d}
	i := d.repairing(r).streams()
	d.publish(1, 1)
	eventually(t, "the drop of the slot", func() bool {
		d.exec(fmt.Sprintf("SELECT pg_terminate_backend(%d)", d.walsender()))
		_, err := d.conn.Exec(t.Context(), "SELECT pg_drop_replication_slot($1)", d.opts.Slot)
		return err == nil
	})
	if err := i.wait(); !errors.Is(err, ErrToRepair) || len(r.asked) > 0 {
		t.Fatalf("Run = %v, and the repairer was asked %d times", err, len(r.asked))
	}
	d.insert(1, 1)
	d.repairing(r).streams()
	d.wantsOnce()
}

// A slot lost before its first event is lost after a publication all the same: only then
// is it noticed that published rows were deleted, so others may be, too.
func TestASecondLossRightAfterARepair(t *testing.T) {
	d, r := lossy(t)
	d.dropSlot()
	i := d.repairing(r).streams()
	d.wantsOnce()
	i.stop()
	for range 2 {
		d.dropSlot()
		i = d.repairing(r).streams()
		i.stop()
		if of := r.asked[len(r.asked)-1]; !of.Known || of.Before == 0 {
			t.Errorf("asked for %+v", of)
		}
	}
	d.run().streams().stop()
	if cp, _, _ := d.store.Load(t.Context()); !cp.HasPublished() {
		t.Errorf("forgotten by a start: %+v", cp)
	}
	d.wantOnce()
}

// A reader with another checkpoint has published what the slot has passed. Whether it has
// is known only from Kafka: without a repair the slot's advance is a loss.
func TestASlotReadWithAnotherCheckpoint(t *testing.T) {
	d := outbox(t)
	i := d.run().streams()
	d.publish(2, 1)
	i.stop()
	elsewhere := &fakeStore{}
	i = d.start(elsewhere, d.gate).streams()
	d.publish(2, 1)
	i.stop()
	d.insert(1, 1)
	d.run().wantEnd(failure.Loss, "was advanced or recreated by somebody else")
	r := &fakeRepairer{d: d}
	i = d.repairing(r).streams()
	d.wantsOnce()
	i.stop()
	d.insert(1, 1)
	i = d.startWith(Parts{Store: elsewhere, Sink: d.gate, Repairer: r}).streams() // back again
	d.wantsOnce()
	i.stop()
	if len(r.asked) != 4 || r.looks != 2 {
		t.Errorf("%d questions, %d of them looks", len(r.asked), r.looks)
	}
}

// Failure mode 191. The new slot waits for a prepared transaction. Readiness names it with its end, in its
// own database.
func TestARepairWaitsForAPreparedTransaction(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Setting("max_prepared_transactions", "2"))
	d := newDatabase(t, server.NewDatabase(t))
	r := &fakeRepairer{d: d}
	i := d.repairing(r).streams()
	d.publish(3, 1)
	i.stop()
	d.dropSlot()
	other := newDatabase(t, server.NewDatabase(t))
	other.exec("BEGIN; INSERT INTO outbox VALUES ('other', 'order', 'o-1', 'Placed', '{}'); PREPARE TRANSACTION 'it''s theirs'")
	i = d.repairing(r)
	name := other.text("SELECT current_database()")
	i.unready("the creation of slot " + d.opts.Slot + " waits for the prepared transaction 'it''s theirs' (database " + name + ", role ")
	if want, all := "COMMIT PREPARED 'it''s theirs'; or ROLLBACK PREPARED 'it''s theirs'; in database "+name+";", i.health.Remedies(); !slices.Contains(all, want) {
		t.Errorf("remedies %q, want %q", all, want)
	}
	eventually(t, "the log", func() bool { return i.logs.FilterMessage("creating the slot takes long").Len() > 0 })
	d.insert(2, 1) // before the consistent point, and in no log of a slot
	other.exec("ROLLBACK PREPARED 'it''s theirs'")
	i.streams()
	d.wantsOnce()
	i.stop()
}

// An operator's repair has the lock: both would publish the same.
func TestARepairWaitsForAnOperators(t *testing.T) {
	d, r := lossy(t)
	d.dropSlot()
	operator := must.Get(pgx.Connect(t.Context(), d.url))(t)
	if alone := must.Get(catalog.LockVerb(t.Context(), operator, catalog.RepairVerb, d.opts.Slot))(t); !alone {
		t.Fatal("somebody has the lock")
	}
	i := d.repairing(r)
	eventually(t, "the wait", func() bool { return i.status().Phase == "standby" })
	d.wantNoSlot()
	ready, reasons := i.health.Ready()
	if ready || !strings.Contains(strings.Join(reasons, "; "), "made anew after a loss") {
		t.Errorf("ready %t, reasons %q", ready, reasons)
	}
	must.OK(t, operator.Close(t.Context()))
	i.streams()
	d.wantsOnce()
}
