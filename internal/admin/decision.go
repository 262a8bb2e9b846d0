package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
)

// decision is the basis of an operator's decision: an unread slot, the
// checkpoint, and the database's view.
type decision struct {
	*view
	*session
	store checkpoint.Store // nil: there is none, and so no checkpoint
}

// openDecision looks at everything for a verb and changes nothing.
func openDecision(ctx context.Context, cfg *config.Config, verb string) (d *decision, err error) {
	if cfg.Source.Mode == config.ModePoll {
		return nil, noSlot(verb, "there is nothing to decide: run publishes the rows that are not marked as published, and goes on past a bad one once that is corrected, or with errors.on_bad_event")
	}
	d = &decision{}
	if d.session, err = open(ctx, cfg); err != nil {
		return nil, err
	}
	if err := d.look(ctx); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// openIdle is openDecision of an unread slot, free to be dropped.
func openIdle(ctx context.Context, cfg *config.Config) (*decision, error) {
	d, err := openDecision(ctx, cfg, "setup --accept-gap")
	if err == nil && d.Exists {
		if err = refuseSlot(ctx, d.conn, d.Slot, d.server.Database); err != nil {
			d.close()
		}
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (d *decision) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	exists, err := storeExists(ctx, d.cfg)
	if err == nil && exists {
		d.store, err = wiring.OpenStore(ctx, d.cfg)
	}
	if err != nil {
		return err
	}
	if d.view, err = d.session.view(ctx, d.store); err != nil {
		return err
	}
	if d.server.InRecovery || errors.Is(d.mismatch, checkpoint.ErrOtherSlot) { // not to be decided here
		return d.mismatch
	}
	return nil
}

// only locks out a second operator with the verb, and looks again: another may have
// changed the state until then.
func (d *decision) only(ctx context.Context, verb string) (err error) {
	if err := d.alone(ctx, verb); err != nil {
		return err
	}
	d.view, err = d.session.view(ctx, d.store)
	return err
}

// checkpointAt is a first checkpoint at the position, of the view's database
// and slot.
func (d *decision) checkpointAt(at pg.LSN) checkpoint.Checkpoint {
	return d.session.checkpointAt(d.view, at)
}

func (s *session) checkpointAt(v *view, at pg.LSN) checkpoint.Checkpoint {
	return checkpoint.Checkpoint{
		LSN:         at,
		Landmark:    checkpoint.Landmark{Commit: at},
		Scope:       s.scope(),
		SystemID:    v.server.SystemID,
		Timeline:    v.server.Timeline,
		Database:    v.server.Database,
		Slot:        s.cfg.Source.Slot,
		Publication: v.Fingerprint, PublicationName: s.cfg.Source.Publication,
		SavedAt: time.Now().UTC(),
		Epoch:   1,
	}
}

func (d *decision) close() {
	if d.store != nil {
		d.store.Close()
	}
	d.session.close()
}

// ready makes sure that the decision can be saved, before any change, and
// creates the store's missing parts.
func (d *decision) ready(ctx context.Context) (err error) {
	if d.store == nil {
		if d.store, err = wiring.OpenStore(ctx, d.cfg); err != nil {
			return err
		}
	}
	return storeWritable(ctx, d.cfg, d.store, store.Writable)
}

// owned is the next run's knowledge of the outbox tables' OIDs.
func (d *decision) owned() checkpoint.Owned {
	return d.stored.OwnedUnder(d.scope(), d.Tables).Seen(d.Tables, d.End)
}

// preview is the end of a command without --yes.
func preview(remedy string) error {
	return failure.Configf(remedy, "this was a preview: nothing was changed")
}

// save stores the decision.
func (d *decision) save(ctx context.Context, cp checkpoint.Checkpoint) error {
	if err := saveCheckpoint(ctx, d.store, cp); err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	return nil
}
