package admin

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// Each loss is accepted, and nothing is wrong afterwards.
func TestAcceptGap(t *testing.T) {
	for _, tt := range []struct {
		name   string
		lose   func(*fixture)
		reason string
		slot   string
	}{
		{"slot dropped", func(f *fixture) { f.exec(dropSlot(f)) }, "is gone", "created"},
		{"slot recreated", func(f *fixture) {
			f.exec(dropSlot(f), `SELECT pg_create_logical_replication_slot('`+f.Source.Slot+`', 'pgoutput')`)
		}, "advanced or recreated", "kept"},
		{"slot advanced", func(f *fixture) {
			f.insert("order", "1", "{}")
			f.exec(`SELECT pg_replication_slot_advance('` + f.Source.Slot + `', pg_current_wal_lsn())`)
		}, "advanced or recreated", "kept"},
		{"table taken out and added again", func(f *fixture) {
			f.exec(`ALTER PUBLICATION cdc_outbox DROP TABLE outbox`, `ALTER PUBLICATION cdc_outbox ADD TABLE outbox`)
		}, "publication was recreated", "kept"},
		{"publication dropped", func(f *fixture) { f.exec(`DROP PUBLICATION cdc_outbox`) }, "publication", "recreated"},
		{"publication recreated", func(f *fixture) {
			f.exec(`DROP PUBLICATION cdc_outbox`, `CREATE PUBLICATION cdc_outbox FOR TABLE outbox`)
		}, "publication was recreated", "recreated"},
		{"nothing", func(*fixture) {}, "", "kept"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := sound(t)
			before := f.save()
			tt.lose(f)

			plan, err := AcceptGap(f.ctx(), f.Config, GapOptions{})
			wantClass(t, err, failure.Config, "nothing was changed")
			if plan.Done || !strings.Contains(plan.Reason, tt.reason) || plan.Slot != tt.slot || plan.From != before.LSN.String() {
				t.Errorf("plan %+v, want reason %q and slot %s", plan, tt.reason, tt.slot)
			}
			if cp := f.stored(); cp.LSN != before.LSN || cp.Publication != before.Publication {
				t.Errorf("the plan changed the checkpoint to %+v", cp)
			}

			done := must.Get(AcceptGap(f.ctx(), f.Config, GapOptions{Yes: true, Snapshot: true}))(t)
			cp := f.stored()
			slot, ok := f.slot()
			if !ok || !done.Done || cp.LSN.String() != done.To || cp.LSN < slot.ConfirmedFlush || !cp.Snapshot ||
				cp.Epoch <= before.Epoch || cp.Publication != f.publication() {
				t.Errorf("done %+v, checkpoint %+v, slot %+v", done, cp, slot)
			}
			f.wantCheck("checkpoint", OK, "fits the database")
		})
	}
}

// A disk was put back, and the log has grown past the checkpoint. The slot's
// part of the new log is published.
func TestAcceptGapBelowTheCheckpoint(t *testing.T) {
	f := sound(t)
	f.insert("order", "1", "{}")
	slot, _ := f.slot()
	f.saveAt(slot.ConfirmedFlush + 100)
	done, err := AcceptGap(f.ctx(), f.Config, GapOptions{Yes: true})
	if err != nil || !done.ReadAgain {
		t.Fatalf("%+v, %v; want what is between read again", done, err)
	}
	if cp := f.stored(); cp.LSN != slot.ConfirmedFlush || done.To != slot.ConfirmedFlush.String() {
		t.Errorf("the checkpoint is at %s and the report says %s, want the slot's position %s", cp.LSN, done.To, slot.ConfirmedFlush)
	}
}

// After the gap the stream works: decoding does not trip over a publication
// younger than the slot.
func TestAcceptGapStreams(t *testing.T) {
	f := sound(t)
	f.save()
	f.insert("order", "before", "{}")
	f.exec(`DROP PUBLICATION cdc_outbox`)
	must.Get(AcceptGap(f.ctx(), f.Config, GapOptions{Yes: true}))(t)
	f.insert("order", "after", "{}")

	var keys []string
	f.stream(func(row *pg.Row) bool {
		keys = append(keys, string(row.Values[2].Data))
		return false
	})
	if strings.Join(keys, " ") != "after" {
		t.Errorf("streamed %v", keys)
	}
}

// Events between a slot and a later checkpoint come again, and are not missing.
func TestGapReportText(t *testing.T) {
	const (
		again = "run first publishes every row that is in the outbox tables, under its own id, also those that were published before; old events of a key then come behind newer ones.\n"
		none  = "run publishes no row again that is in the outbox tables"
		stay  = "With --yes --snapshot: " + again + "With --yes: " + none + ".\n"
	)
	for name, tt := range map[string]struct {
		report GapReport
		want   string
	}{
		"a gap": {GapReport{Reason: "slot \"s\" is gone", From: "0/A", Saved: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), To: "0/B", Slot: "created"},
			"Why the connector stopped: slot \"s\" is gone\n" +
				"Gap: events committed between 0/A (saved at 2026-01-02T03:04:05Z) and 0/B may never have been published.\n" +
				"Slot: would be created.\n" + stay},
		"done": {GapReport{From: "0/A", To: "0/A", Slot: "kept", Done: true},
			"The slot fits the checkpoint: no gap is known.\nSlot: kept.\nRows: " + none + ".\nDone: run goes on from 0/A.\n"},
		"with retention": {GapReport{From: "0/A", To: "0/A", Slot: "kept", retention: true},
			"The slot fits the checkpoint: no gap is known.\nSlot: would be kept.\n" +
				"With --yes --snapshot: " + again + "With --yes: " + none + ", and retention deletes them when they are old.\n"},
		"with a snapshot": {GapReport{From: "0/A", To: "0/A", Slot: "kept", Snapshot: true, Done: true},
			"The slot fits the checkpoint: no gap is known.\nSlot: kept.\nRows: " + again + "Done: run goes on from 0/A.\n"},
		"exactly once": {GapReport{From: "0/A", To: "0/A", Slot: "kept", once: true, repairs: true, Unreadable: "no right: GRANT"},
			"The slot fits the checkpoint: no gap is known.\nSlot: would be kept.\nRows: " + none +
				"; `cdc-outbox repair --publish`, beside run, publishes the missing events alone.\nBefore `cdc-outbox repair --publish`: no right: GRANT\n"},
		"nothing wrong": {GapReport{From: "0/A", To: "0/A", Slot: "kept"},
			"The slot fits the checkpoint: no gap is known.\nSlot: would be kept.\n" + stay},
		"nothing wrong, the slot is behind": {GapReport{From: "0/B", To: "0/A", Slot: "kept", ReadAgain: true},
			"The slot fits the checkpoint: no gap is known.\n" +
				"Read again: the slot still has what was committed between 0/A and 0/B, where the checkpoint is; what was published of it is published once more.\n" +
				"Slot: would be kept.\n" + stay},
		"no checkpoint": {GapReport{To: "0/A", Slot: "kept"},
			"There is no checkpoint, and no gap is known.\nSlot: would be kept.\n" + stay},
		"the slot is behind": {GapReport{Reason: "the publication was recreated", From: "0/B", To: "0/A", Slot: "kept", ReadAgain: true},
			"Why the connector stopped: the publication was recreated\n" +
				"Read again: the slot still has what was committed between 0/A and 0/B, where the checkpoint is; what was published of it is published once more.\n" +
				"Gap: apart from what is named above, nothing that was committed from 0/A on is missing.\n" +
				"Slot: would be kept.\n" + stay},
		"another server": {GapReport{Reason: "wrong database cluster", From: "5/0", To: "0/A", Slot: "kept", elsewhere: true},
			"Why the connector stopped: wrong database cluster\n" +
				"Gap: events committed after 5/0 on the server of the checkpoint, or before 0/A on this one, may never have been published.\n" +
				"Slot: would be kept.\n" + stay},
	} {
		t.Run(name, func(t *testing.T) {
			if got := text(t, &tt.report); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// Without a store for checkpoints, nothing would remember the pending snapshot.
func TestAcceptGapPromisesNoSnapshotWithoutAStore(t *testing.T) {
	f := empty(t)
	f.Checkpoint.Store = store.StoreNone
	f.setup()
	f.insert("order", "1", "{}")
	before, _ := f.slot()
	for _, yes := range []bool{false, true} {
		report, err := AcceptGap(f.ctx(), f.Config, GapOptions{Yes: yes, Snapshot: true})
		wantClass(t, err, failure.Config, "checkpoint.store is none")
		if report != nil {
			t.Errorf("report %+v", report)
		}
	}
	if now, _ := f.slot(); now.ConfirmedFlush != before.ConfirmedFlush {
		t.Errorf("the slot moved from %s to %s", before.ConfirmedFlush, now.ConfirmedFlush)
	}
	if _, err := AcceptGap(f.ctx(), f.Config, GapOptions{Yes: true}); err != nil {
		t.Errorf("without --snapshot: %v", err)
	}
}

// Failure mode 143: "Done" is a promise for the next run. A missing right is
// named before any change.
func TestAcceptGapWantsTheRightsFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		attributes string
		more       []string // SQL, with %s for the role
		lose       func(*fixture) []string
		opts       GapOptions
		want       string // of the error
		remedy     string
	}{
		"to read the table": {"REPLICATION", nil, func(f *fixture) []string { return []string{dropSlot(f)} },
			GapOptions{Yes: true, Snapshot: true}, "may not read public.outbox", "GRANT SELECT"},
		"to see all rows": {"REPLICATION", []string{"GRANT SELECT ON outbox TO %s", "ALTER TABLE outbox ENABLE ROW LEVEL SECURITY"},
			func(f *fixture) []string { return []string{dropSlot(f)} },
			GapOptions{Yes: true, Snapshot: true}, "would hide rows", "BYPASSRLS"},
		"to replicate": {"", nil, func(f *fixture) []string { return []string{dropSlot(f)} },
			GapOptions{Yes: true}, "may not read slot", "WITH REPLICATION"},
		"to make the publication": {"REPLICATION", nil, func(*fixture) []string { return []string{`DROP PUBLICATION cdc_outbox`} },
			GapOptions{Yes: true}, "may not create it", "setup"},
		"to make the publication, only asked": {"REPLICATION", nil, func(*fixture) []string { return []string{`DROP PUBLICATION cdc_outbox`} },
			GapOptions{}, "may not create it", "setup"},
	} {
		t.Run(name, func(t *testing.T) {
			f := sound(t)
			before := f.save()
			role := slotName(t)
			f.exec(`CREATE ROLE ` + role + ` LOGIN PASSWORD 'pw' ` + tt.attributes)
			f.t.Cleanup(func() { f.exec(`DROP OWNED BY `+role, `DROP ROLE `+role) })
			for _, sql := range tt.more {
				f.exec(strings.Replace(sql, "%s", role, 1))
			}
			f.exec(tt.lose(f)...)
			_, slotBefore := f.slot()
			owner := f.Source.URL
			f.Source.URL = asRole(owner, role, "pw")

			report, err := AcceptGap(f.ctx(), f.Config, tt.opts)
			wantClass(t, err, failure.Config, "nothing was changed", tt.want)
			must.Contain(t, failure.RemedyOf(err), tt.remedy)
			if report == nil || report.Done {
				t.Errorf("report %+v", report)
			}
			if cp := f.stored(); cp.Epoch != before.Epoch {
				t.Errorf("the checkpoint is %+v", cp)
			}
			if _, slotNow := f.slot(); slotNow != slotBefore {
				t.Errorf("the slot is there: %v, before %v", slotNow, slotBefore)
			}
			f.Source.URL = owner
		})
	}
}

// The repair after an accepted gap reads the tables, and the run before it does not.
func TestAcceptGapNamesTheRightOfTheRepair(t *testing.T) {
	p := newPublished(t)
	role := slotName(t)
	p.exec(`CREATE ROLE ` + role + ` LOGIN REPLICATION PASSWORD 'pw'`)
	t.Cleanup(func() { p.exec(`DROP OWNED BY `+role, `DROP ROLE `+role) })
	p.Source.URL = asRole(p.Source.URL, role, "pw")
	report, err := AcceptGap(p.ctx(), p.Config, GapOptions{})
	wantClass(t, err, failure.Config, "nothing was changed")
	must.Contain(t, text(t, report), "Before `cdc-outbox repair --publish`: ", "the role may not read public.outbox", `GRANT SELECT ON "public"."outbox" TO "`+role+`";`)
	report = must.Get(AcceptGap(p.ctx(), p.Config, GapOptions{Yes: true}))(t)
	must.Contain(t, text(t, report), "GRANT SELECT", "Done: ")
	p.exec(`GRANT SELECT ON outbox TO ` + role)
	if report, _ = AcceptGap(p.ctx(), p.Config, GapOptions{}); report.Unreadable != "" {
		t.Errorf("with the right: %s", report.Unreadable)
	}
}

// With exactly_once, run refuses the snapshot.
func TestAcceptGapOffersNoSnapshotWithExactlyOnce(t *testing.T) {
	p := newPublished(t)
	p.Sink.Kafka.Delivery = sink.DeliveryExactlyOnce
	for _, yes := range []bool{false, true} {
		_, err := AcceptGap(p.ctx(), p.Config, GapOptions{Yes: yes, Snapshot: true})
		wantClass(t, err, failure.Config, "exactly_once run publishes no snapshot but")
		must.Contain(t, failure.RemedyOf(err), "`cdc-outbox setup --accept-gap --yes`", "`cdc-outbox repair --publish`")
	}
	report, err := AcceptGap(p.ctx(), p.Config, GapOptions{})
	if remedy := failure.RemedyOf(err); strings.Contains(remedy+text(t, report), "--snapshot") {
		t.Errorf("%s\n%s", remedy, text(t, report))
	}
	if _, exists := p.slot(); exists {
		t.Error("a slot was made")
	}
}

// The checkpoint notes each gap, from its first position on, until the events are repaired; a
// decision without a gap notes none.
func TestAcceptGapIsNoted(t *testing.T) {
	for name, tt := range map[string]struct {
		lose  func(*fixture)
		noted bool
	}{
		"slot dropped": {func(f *fixture) { f.exec(dropSlot(f)) }, true},
		"publication recreated": {func(f *fixture) {
			f.exec(`DROP PUBLICATION cdc_outbox`, `CREATE PUBLICATION cdc_outbox FOR TABLE outbox`)
		}, true},
		"a snapshot left out":    {func(f *fixture) { cp := *f.stored(); cp.Snapshot = true; cp.Epoch++; f.put(cp) }, true},
		"nothing":                {func(*fixture) {}, false},
		"a sink without topics":  {func(f *fixture) { f.exec(dropSlot(f)); f.Sink = config.Sink{Stdout: &config.Stdout{}} }, false},
		"messages not read more": {func(f *fixture) { cp := *f.stored(); cp.Scope = "public.outbox,messages:p"; cp.Epoch++; f.put(cp) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := sound(t)
			if f.Sink.Kafka == nil {
				f.Sink.Kafka = &sink.Options{}
			}
			before := f.save()
			tt.lose(f)
			plan, _ := AcceptGap(f.ctx(), f.Config, GapOptions{})
			if plan == nil || plan.Noted != tt.noted || strings.Contains(text(t, plan), "Noted in the checkpoint then, until") != tt.noted {
				t.Fatalf("plan %+v, want noted %v", plan, tt.noted)
			}
			if f.stored().Accepted != nil {
				t.Error("the preview notes it")
			}
			done := must.Get(AcceptGap(f.ctx(), f.Config, GapOptions{Yes: true}))(t)
			gap := f.stored().Accepted
			if (gap != nil) != tt.noted || done.Noted != tt.noted {
				t.Fatalf("noted %+v, want %v", gap, tt.noted)
			}
			if !tt.noted {
				return
			}
			if gap.From != before.LSN || gap.To.String() != done.To || gap.Reason != done.Reason || gap.ID == "" {
				t.Errorf("noted %+v, of %+v", gap, done)
			}
			f.wantCheck("checkpoint.gap", Warn, "retention waits")
			if s := text(t, Status(f.ctx(), f.Config)); !strings.Contains(s, "retention waits") || strings.Contains(s, gap.ID) {
				t.Errorf("status: %s", s)
			}
			must.Get(AcceptGap(f.ctx(), f.Config, GapOptions{Yes: true}))(t)
			if again := f.stored().Accepted; again == nil || again.From != gap.From {
				t.Errorf("after another decision: %+v, before %+v", again, gap)
			}
		})
	}
}
