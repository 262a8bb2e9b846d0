package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
)

// view is the state of checkpoint and database. The parts are read in the order
// of checkpoint.Server, so the progress of a running connector does not look like
// a loss: slot, checkpoint, server.
type view struct {
	catalog.View
	stored *checkpoint.Checkpoint // nil: none
	looked bool                   // for a checkpoint, without an error
	gone   error                  // why the former checkpoint is missing
	epoch  int64                  // stored; 0: none
	// begun is a Beginning: the store's note that nobody has read the slot yet.
	begun  *checkpoint.Checkpoint
	server catalog.Server
	// mismatch is why the connector cannot go on from the checkpoint, if so.
	mismatch error
}

// view reads all three parts. A nil store does not exist yet.
func (s *session) view(ctx context.Context, store checkpoint.Store) (*view, error) {
	v := &view{looked: true}
	if err := v.ReadSlot(ctx, s.conn, s.source()); err != nil {
		return nil, err
	}
	if store != nil {
		if err := v.load(ctx, store); err != nil {
			return nil, err
		}
	}
	return v, s.readServer(ctx, v)
}

func (v *view) load(ctx context.Context, opened checkpoint.Store) error {
	cp, ok, err := opened.Load(ctx)
	if errors.Is(err, store.ErrGone) {
		v.gone, v.looked = err, true
		return nil
	}
	if err != nil {
		return fmt.Errorf("load checkpoint: %w", err)
	}
	v.looked, v.epoch = true, cp.Epoch
	switch {
	case ok && cp.Creating:
		v.begun = &cp
	case ok:
		cp = cp.Confirmed(v.Slot.ConfirmedFlush)
		v.stored = &cp
	}
	return nil
}

// readServer reads the rest and compares it with the checkpoint.
func (s *session) readServer(ctx context.Context, v *view) (err error) {
	if err := v.ReadPublication(ctx, s.conn, s.source()); err != nil {
		return err
	}
	if v.stored != nil {
		following := v.stored.Following(v.Tables)
		following, err := following.Through(s.cfg.Source.Publication, v.Fingerprint, s.source().PublishedBefore(ctx, s.conn))
		if failure.ClassOf(err) == failure.Config {
			v.mismatch = err
		} else if err != nil {
			return err
		}
		v.stored = &following
	}
	if v.server, err = catalog.ReadServer(ctx, s.conn); err != nil {
		return err
	}
	if v.server.InRecovery {
		v.mismatch = onStandby()
		return nil
	}
	seen := checkpoint.Server{
		Name: s.cfg.Source.Slot, Scope: s.scope(), Key: wiring.CheckpointKey(s.cfg), SystemID: v.server.SystemID, Timeline: v.server.Timeline, Database: v.server.Database, CurrentLSN: v.server.FlushLSN,
		Publication: v.Fingerprint, PublicationName: s.cfg.Source.Publication, Exists: v.Exists, Slot: v.Slot,
		StoredInside: s.cfg.Checkpoint.Store == store.StorePostgres,
	}
	if seen.Patroni, err = catalog.Patroni(ctx, s.conn); err != nil {
		return err
	}
	if v.stored != nil && v.stored.Timeline != v.server.Timeline {
		repl, err := s.replication(ctx)
		if err != nil {
			return err
		}
		defer catalog.Close(repl)
		if seen.TimelineSwitch, err = catalog.TimelineSwitch(ctx, repl, v.server.Timeline, v.stored.Timeline); err != nil {
			return err
		}
	}
	if v.stored != nil && (v.Publication == nil || v.Unfit() != nil) { // says more than the comparison of the publication would
		seen.Publication = v.stored.Publication
	}
	unread := v.mismatch
	if v.mismatch = s.offer(v, s.compare(ctx, v, seen), seen); unread != nil {
		v.mismatch = unread
	}
	if v.mismatch == nil && v.stored != nil && v.Unfit() != nil {
		v.mismatch = v.stored.Unread(&v.View, func(oid uint32) (pg.Table, error) { return catalog.TableOf(ctx, s.conn, oid) })
	}
	return nil
}

// compare is nil before a first start: no slot and no checkpoint.
func (s *session) compare(ctx context.Context, v *view, seen checkpoint.Server) error {
	if v.gone != nil {
		return v.gone
	}
	if v.begun != nil {
		if err := v.begun.Belongs(&seen); err != nil {
			return err
		}
	}
	if v.stored == nil && !v.Exists {
		return nil
	}
	if _, err := checkpoint.Verify(v.stored, seen); err != nil {
		return store.OwnFile(err, s.cfg.Checkpoint, v.stored, v.Slot)
	}
	if err := s.undecided(v); err != nil {
		return err
	}
	if v.Publication != nil {
		return nil
	}
	if v.stored != nil {
		if err := v.stored.WithoutPublication(s.cfg.Source.Publication); err != nil {
			return err
		}
	}
	return s.source().MissingPublication(ctx, s.conn, v.read())
}

// offer adds the repair to the remedy of a loss, where run would.
func (s *session) offer(v *view, loss error, seen checkpoint.Server) error {
	if s.cfg.Errors.OnLoss != config.LossStop || !s.cfg.Repairable() || v.stored.GapIn(loss, seen) == nil {
		return loss
	}
	return checkpoint.OfferRepair(loss, s.cfg.Fleet.On())
}

// read is the fingerprint of the publication read; "" for none.
func (v *view) read() string {
	if v.stored == nil {
		return ""
	}
	return v.stored.Publication
}

// mistaken is the error of a wrong publication in the configuration: the right
// publication is there, so nothing is lost.
func (v *view) mistaken() error {
	if missing, ok := errors.AsType[*catalog.MissingPublication](v.mismatch); ok && missing.Meant != "" {
		return v.mismatch
	}
	return nil
}

// undecided is checkpoint.Undecided, once slot and store were read.
func (s *session) undecided(v *view) error {
	if !v.Exists || !v.looked {
		return nil
	}
	return checkpoint.Undecided(v.Slot, v.stored, v.begun, s.cfg.Source.Snapshot == config.SnapshotInitial, wiring.ExactlyOnce(s.cfg))
}

// known is the position up to which everything counts as published.
func (v *view) known() pg.LSN {
	if v.stored == nil {
		return v.Slot.ConfirmedFlush
	}
	return max(v.stored.LSN, v.Slot.ConfirmedFlush)
}

// elsewhere reports whether the checkpoint is setup's, and of another database.
func (v *view) elsewhere() bool {
	return v.stored != nil && v.stored.Made && (v.stored.SystemID != v.server.SystemID || v.stored.Database != v.server.Database)
}

// scope is the checkpoint's scope in the configuration.
func (s *session) scope() string {
	c := s.cfg.Source
	return checkpoint.Scope(c.Tables, c.Mode == config.ModeMessage, c.MessagePrefix)
}
