package admin

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

// AdoptReport names the slot taken over, and the position.
type AdoptReport struct {
	Slot   string          `json:"slot"`
	From   string          `json:"from"`             // everything committed behind it is published
	Holder *catalog.Holder `json:"holder,omitempty"` // the slot's reader now, who may move it on
	// Known: a checkpoint has the slot already, or setup made the slot: there is
	// nothing to take over.
	Known bool `json:"known"`
	Done  bool `json:"done"`
}

// Adopt notes another program's slot in the checkpoint, so the next run goes on
// from the slot, and notices a drop until then. Adopt changes nothing else, and
// nothing at all without yes.
func Adopt(ctx context.Context, cfg *config.Config, yes bool) (*AdoptReport, error) {
	if cfg.Source.Mode != config.ModePoll && cfg.Checkpoint.Store == store.StoreNone {
		return nil, failure.Configf("set checkpoint.store to kafka, postgres or file, also for run",
			"checkpoint.store is none: nothing would remember the slot")
	}
	d, err := openDecision(ctx, cfg, "adopt")
	if err != nil {
		return nil, err
	}
	defer d.close()
	if err := d.adoptable(); err != nil {
		return nil, err
	}
	r := &AdoptReport{Slot: d.Slot.Name, From: d.known().String(), Known: d.stored != nil || d.begun != nil}
	if r.Known {
		return r, nil
	}
	if d.Slot.Active {
		holder, err := catalog.ReadHolder(ctx, d.conn, d.Slot.ActivePID)
		if err != nil {
			return nil, err
		}
		r.Holder = &holder
	}
	if err := d.mayReplicate(ctx, "read"); err != nil { // as the next run does
		return nil, fmt.Errorf("nothing was changed: %w", err)
	}
	if !yes {
		return r, failure.Configf("repeat it with --yes", "nothing was changed")
	}
	if err := d.ready(ctx); err != nil {
		return nil, err
	}
	cp := d.checkpointAt(d.Slot.ConfirmedFlush)
	cp.Adopted = d.Slot.Active
	if err := d.save(ctx, cp); err != nil {
		return nil, err
	}
	r.Done = true
	return r, nil
}

// adoptable returns the reason against taking over the slot, if any. A slot
// unknown to the store is no reason.
func (d *decision) adoptable() error {
	switch {
	case d.stored == nil && d.gone == nil && !d.Exists:
		return failure.Configf("correct source.slot. If its reader dropped it when it stopped (Debezium does with slot.drop.on.stop), "+
			"let that read its table again, turn that off, and adopt the slot while it is read. `cdc-outbox setup` makes a new slot, which has what is committed from then on",
			"slot %q does not exist: there is nothing to take over", d.cfg.Source.Slot)
	case d.Publication == nil && d.stored == nil:
		return failure.Configf("set source.publication to the one that the slot's reader uses (Debezium: publication.name), or create it with `cdc-outbox setup`",
			"publication %q does not exist", d.cfg.Source.Publication)
	case d.mismatch != nil && !errors.Is(d.mismatch, checkpoint.ErrNone):
		return d.mismatch
	}
	if err := d.Unfit(); err != nil {
		return fmt.Errorf("the tables cannot be read through the publication: %w", err)
	}
	return nil
}

// WriteText prints the report for a person.
func (r *AdoptReport) WriteText(w io.Writer) error {
	var l lines
	switch {
	case r.Known:
		l.printf("Slot %s is known already: run goes on from %s.\n", r.Slot, r.From)
		return l.to(w)
	case r.Done:
		l.printf("Slot %s is taken over: run goes on from %s.\n", r.Slot, r.From)
	default:
		l.printf("Slot %s would be taken over: run would go on from %s.\n", r.Slot, r.From)
	}
	if r.Holder != nil {
		l.printf("It is read by %s, which may move it on until it is stopped. It must not drop it: for Debezium, slot.drop.on.stop is false.\n", r.Holder)
	}
	l.printf("What its reader has published and not confirmed comes again. If the slot is gone then, run ends with exit code 3.\n")
	return l.to(w)
}
