package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// FinishReport says how the connector goes on with the server after a major
// upgrade.
type FinishReport struct {
	Version int       `json:"version"`         // of the server
	Marked  time.Time `json:"marked,omitzero"` // when the marker was written
	// Proven: the server has the marker, and was made by pg_upgrade of the old server.
	// Otherwise it is a copy, as by logical replication.
	Proven bool `json:"proven"`
	// Slot is its fate: kept, created, recreated.
	Slot string `json:"slot"`
	From string `json:"from,omitempty"` // the position for run to go on from
	// Later counts the rows of transactions that may have ended after the marker;
	// only with Proven.
	Later int64 `json:"later_rows"`
	// Repair has the events missing in Kafka before the slot, published if Done; nil:
	// nothing was compared.
	Repair *RepairReport `json:"repair,omitempty"`
	// NotCompared is why the rows before a new slot cannot be compared; "": they can.
	NotCompared string `json:"not_compared,omitempty"`
	// Known: the checkpoint is of this server already.
	Known bool     `json:"known"`
	Done  bool     `json:"done"`
	Next  []string `json:"next"`
}

// finish is a FinishUpgrade at work.
type finish struct {
	*decision
	opts AuditOptions
	r    *FinishReport
	// early counts rows from behind the marker, but before the slot: a kept slot has
	// none.
	early int64
}

// FinishUpgrade has the next run go on with the server after a major upgrade. A
// slot kept by pg_upgrade is adopted. Otherwise a new slot is made, and the events
// missing in Kafka as of the first position are published. Without yes nothing is
// changed, and the missing events are named. A repetition goes on at any point.
func FinishUpgrade(ctx context.Context, cfg *config.Config, opts AuditOptions, yes bool) (*FinishReport, error) {
	if err := upgradable(cfg, "upgrade finish"); err != nil {
		return nil, err
	}
	d, err := openDecision(ctx, cfg, "upgrade finish")
	if err != nil {
		return nil, err
	}
	defer d.close()
	f := &finish{decision: d, opts: opts, r: &FinishReport{Version: d.server.Version}}
	if yes {
		if err := d.only(ctx, "upgrade finish"); err != nil {
			return f.r, err
		}
	}
	if known, err := f.known(); known || err != nil {
		return f.r, err
	}
	if err := f.plan(ctx); err != nil {
		return f.r, err
	}
	if !yes || !f.r.Proven { // nothing is changed on a server that is none of ours
		if err := f.foresee(ctx); err != nil {
			return f.r, err
		}
	}
	if !yes {
		return f.r, preview("repeat it with --yes")
	}
	if err := d.ready(ctx); err != nil {
		return f.r, err
	}
	if f.r.Slot == slotKept {
		err = f.adopt(ctx)
	} else {
		err = f.anew(ctx)
	}
	return f.r, err
}

// The fates of a slot.
const (
	slotKept      = "kept"
	slotCreated   = "created"
	slotRecreated = "recreated"
)

// known reports whether there is nothing to finish, or why nothing can be.
func (f *finish) known() (bool, error) {
	cp := f.stored
	switch {
	case cp == nil:
		return false, failure.Configf(f.whereItIs()+"; if no connector has read that slot yet: `cdc-outbox setup`",
			"there is no checkpoint of slot %q: no upgrade was prepared", f.cfg.Source.Slot)
	case cp.SystemID == f.server.SystemID && f.mismatch != nil:
		return false, f.mismatch
	case cp.SystemID == f.server.SystemID && cp.Upgrade != nil:
		f.r.Marked, f.r.Next = cp.Upgrade.At, nextUpgrade(f.server.Major())
		return false, failure.Configf("correct source.url", "this is the server of the preparation still, with PostgreSQL %d", f.server.Major())
	case cp.SystemID == f.server.SystemID:
		f.r.Known, f.r.From, f.r.Slot, f.r.Next = true, f.decision.known().String(), slotKept, afterUpgrade
		return true, nil
	case cp.Upgrade == nil:
		return false, failure.Lossf("start the old server, and there: `cdc-outbox upgrade prepare`. If it is gone: `cdc-outbox setup --accept-gap --yes`, start the connector, and beside it: `cdc-outbox repair --publish`",
			"no upgrade was prepared, or a connector went on with the old server since: nothing proves what is published up to %s of system identifier %s", cp.LSN, cp.SystemID)
	case cp.Database != f.server.Database:
		return false, failure.Configf("correct the database in source.url", "the upgrade was prepared for database %q, and the connection is to %q", cp.Database, f.server.Database)
	case cp.Scope != "" && cp.Scope != f.scope():
		return false, failure.Configf("set source.tables, source.mode and source.message_prefix as they were; they can be changed once the connector has read the new server",
			"the upgrade was prepared for %s, and the configuration reads %s: events of the rest would be left out", cp.Scope, f.scope())
	}
	f.r.Marked = cp.Upgrade.At
	return false, nil
}

// whereItIs is where the checkpoint of a preparation may be.
func (f *finish) whereItIs() string {
	switch f.cfg.Checkpoint.Store {
	case store.StorePostgres:
		return "a copy of the server needs the checkpoint of the old one: copy its table " + f.cfg.Checkpoint.Table + ", or prepare with checkpoint.store: kafka"
	case store.StoreFile:
		return "take over the file " + f.cfg.Checkpoint.Path + " of the preparation, or correct checkpoint.path"
	}
	return "name the checkpoint.topic and checkpoint.key of the preparation"
}

// plan proves the server, and decides about the slot.
func (f *finish) plan(ctx context.Context) (err error) {
	if f.Exists {
		if err := refuseSlot(ctx, f.conn, f.Slot, f.server.Database); err != nil {
			return err
		}
	}
	if err := f.Unfit(); err != nil {
		return fmt.Errorf("the tables cannot be read through the publication: %w", err)
	}
	note := f.stored.Upgrade
	if f.r.Proven, err = note.Marker.Carried(ctx, f.conn); err != nil {
		return err
	}
	_, lost := f.Slot.Lost()
	switch {
	case f.r.Proven && f.server.FlushLSN < f.stored.LSN:
		return failure.Lossf("connect to the server that pg_upgrade made of the prepared one",
			"the log ends at %s, before the marker at %s: this server was copied earlier", f.server.FlushLSN, f.stored.LSN)
	case !f.Exists:
		f.r.Slot = slotCreated
		err = roomForSlot(f.server, f.cfg.Source.Slot)
	case f.r.Proven && note.Version/10000 >= 17 && !note.Creating && !lost && f.Publication != nil:
		f.r.Slot, f.r.From = slotKept, f.Slot.ConfirmedFlush.String()
	default:
		f.r.Slot = slotRecreated
	}
	if err := errors.Join(err, logs(f.server)); err != nil {
		return err
	}
	f.r.NotCompared = f.notCompared()
	if !f.r.Proven {
		return f.copied(ctx)
	}
	return f.later(ctx)
}

// notCompared is why the rows before a new slot cannot be compared; "": they can.
func (f *finish) notCompared() string {
	switch {
	case f.r.Slot == slotKept:
	case len(f.cfg.Source.Tables) == 0:
		return "messages are in the log only"
	case f.cfg.Sink.Kafka == nil:
		return "sink.stdout keeps nothing"
	}
	return ""
}

// later counts the rows from behind the marker.
func (f *finish) later(ctx context.Context) error {
	marker := f.stored.Upgrade.Marker
	for _, t := range f.cfg.Source.Tables {
		n, err := marker.RowsSince(ctx, f.conn, t, 0)
		if err != nil {
			return err
		}
		early, err := marker.RowsSince(ctx, f.conn, t, f.Slot.CatalogXmin)
		if err != nil {
			return err
		}
		f.r.Later += n
		f.early += early
	}
	if f.r.NotCompared != "" && f.r.Later > 0 {
		return failure.Lossf("find out in the application's own data whether they are published; then "+catalog.AcceptGap,
			"%d rows are of transactions that may have ended after the marker, and nothing tells whether they are published: %s", f.r.Later, f.r.NotCompared)
	}
	return nil
}

// copied refuses a copy still written to by the old server, or about to repeat ids.
func (f *finish) copied(ctx context.Context) error {
	var errs []error
	for _, t := range f.cfg.Source.Tables {
		subscribed, err := catalog.Subscribed(ctx, f.conn, t)
		if err != nil {
			return err
		}
		if len(subscribed) > 0 {
			errs = append(errs, failure.Configf("once the copy has everything: ALTER SUBSCRIPTION "+subscribed[0]+" DISABLE;",
				"subscription %s writes into table %s: the new slot would have its rows once more", strings.Join(subscribed, ", "), t))
		}
		behind, err := catalog.SequencesBehind(ctx, f.conn, t)
		if err != nil {
			return err
		}
		if len(behind) > 0 {
			errs = append(errs, failure.Configf(strings.Join(behind, " "), "a sequence of table %s would give numbers that rows have already: consumers would take new events for repetitions", t))
		}
	}
	return errors.Join(errs...)
}

// adopt goes on from the slot kept by pg_upgrade, with all of the old log confirmed.
// An operator may have made the slot instead, and rows be before the slot.
func (f *finish) adopt(ctx context.Context) error {
	if f.compares() {
		held, err := catalog.HoldSnapshot(ctx, f.cfg.Source.URL.Reveal(), "")
		if err != nil {
			return err
		}
		defer held.Release()
		if err := f.repair(ctx, held.Name, true); err != nil {
			return err
		}
	}
	return f.goOn(ctx, f.Slot.ConfirmedFlush)
}

// anew makes a new slot, and publishes the missing events from before.
func (f *finish) anew(ctx context.Context) error {
	if f.Publication == nil {
		infos, err := catalog.ReadTables(ctx, f.conn, f.cfg.Source.Tables)
		if err == nil {
			err = catalog.CreatePublication(ctx, f.conn, f.cfg.Source.Publication, infos)
		}
		if err == nil {
			err = f.ReadPublication(ctx, f.conn, f.source())
		}
		if err != nil {
			return err
		}
	}
	cp, note := *f.stored, *f.stored.Upgrade
	note.Creating = true
	cp.Upgrade = &note
	cp.Epoch++
	if err := f.save(ctx, cp); err != nil {
		return err
	}
	f.stored = &cp
	if f.Exists {
		if err := catalog.DropSlot(ctx, f.conn, f.cfg.Source.Slot); err != nil {
			return err
		}
	}
	at, held, err := f.createSlotWith(ctx, true)
	if err != nil {
		return err
	}
	defer held.Release()
	if f.compares() {
		if err := f.repair(ctx, held.Name, true); err != nil {
			return err
		}
	}
	return f.goOn(ctx, at)
}

// goOn saves the checkpoint of the new server.
func (f *finish) goOn(ctx context.Context, at pg.LSN) error {
	cp := f.checkpointAt(at)
	cp.Epoch, cp.Ends, cp.Published = f.stored.Epoch+1, f.stored.Ends, f.stored.HasPublished()
	cp.Quarantine, cp.Settled, cp.Accepted = f.stored.Quarantine, f.stored.Settled, f.stored.Accepted.Goes(at)
	if err := f.save(ctx, cp); err != nil {
		return err
	}
	f.r.From, f.r.Done, f.r.Next = at.String(), true, afterUpgrade
	return nil
}

// afterUpgrade is the way on with the new server.
var afterUpgrade = []string{
	"start the connector, then the writers",
	"beside it: `cdc-outbox verify`; if it finds missing events: `cdc-outbox repair --publish`",
}

// WriteText prints the report for a person.
func (r *FinishReport) WriteText(w io.Writer) error {
	var l lines
	l.server(r.Version)
	switch {
	case r.Known:
		l.line("finished", "the checkpoint is of this server: run goes on from %s", r.From)
	case r.Slot == "":
	case r.Proven:
		l.line("proven", "it has the marker of %s: it is the old server, upgraded", r.Marked.Format(time.RFC3339))
	default:
		l.line("a copy", "it has not the marker of %s: it is no result of pg_upgrade, but for example of logical replication", r.Marked.Format(time.RFC3339))
	}
	if r.Later > 0 {
		l.line("writes", "%d rows are of transactions that may have ended after the marker", r.Later)
	}
	r.fate(&l)
	if err := l.to(w); err != nil {
		return err
	}
	if r.Repair != nil {
		if err := r.Repair.WriteText(w); err != nil {
			return err
		}
	}
	l.Reset()
	if r.Done && r.Slot != slotKept {
		l.line("not known", "a row written after the marker and deleted since")
	}
	if r.Done {
		l.line("done", "run goes on from %s", r.From)
	}
	l.next(r.Next)
	return l.to(w)
}

// fate tells about the slot.
func (r *FinishReport) fate(l *lines) {
	switch {
	case r.Slot == slotKept && !r.Known:
		l.line("slot", "kept by pg_upgrade, which wants all of the old log confirmed")
	case r.Slot == "" || r.Slot == slotKept:
	case r.NotCompared != "" && r.Done:
		l.line("slot", "%s; nothing is compared with what was published: %s", r.Slot, r.NotCompared)
	case r.NotCompared != "":
		l.line("slot", "would be %s, and nothing is compared with what was published: %s", r.Slot, r.NotCompared)
	case r.Done:
		l.line("slot", "%s; rows for certain missing in Kafka are published", r.Slot)
	default:
		l.line("slot", "would be %s, and rows for certain missing in Kafka published", r.Slot)
	}
}
