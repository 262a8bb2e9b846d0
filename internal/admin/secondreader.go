package admin

import (
	"context"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
)

// unnoted is the slot, if the store, which may be nil, has no checkpoint of it.
func (s *session) unnoted(ctx context.Context, v *view, kept checkpoint.Store) (*store.Unnoted, error) {
	infos := v.Tables
	if infos == nil { // as there is no publication
		var err error
		if infos, err = catalog.ReadTables(ctx, s.conn, s.cfg.Source.Tables); err != nil {
			return nil, err
		}
	}
	r := catalog.Reading{Slot: s.cfg.Source.Slot, Publication: s.cfg.Source.Publication, Tables: catalog.OIDs(infos)}
	if s.cfg.Source.Mode == config.ModeMessage {
		r.Prefix = s.cfg.Source.MessagePrefix
	}
	return &store.Unnoted{
		Seen:    checkpoint.Server{Name: s.cfg.Source.Slot, Scope: s.scope(), Exists: v.Exists, Slot: v.Slot},
		Reading: r, Siblings: s.cfg.Source.Siblings(), Store: kept, Saves: s.cfg.Checkpoint.Store != store.StoreNone, Begun: v.begun != nil,
	}, nil
}

// renamed is the error of a new slot or checkpoint, if a connector of the same tables under
// another name has left parked events, or an accepted gap.
func (s *session) renamed(ctx context.Context, v *view, kept checkpoint.Store) error {
	if v.stored != nil && !v.stored.Made && !v.stored.Adopted {
		return nil
	}
	if kept == nil {
		look, err := lookStore(ctx, s.cfg)
		if err != nil {
			return err
		}
		if look != nil {
			defer look.Close()
		}
		kept = look
	}
	slot, err := s.unnoted(ctx, v, kept)
	if err != nil {
		return err
	}
	return s.leftBehind(ctx, slot)
}

func (s *session) leftBehind(ctx context.Context, slot *store.Unnoted) error {
	return slot.LeftBehind(ctx, s.conn, func(f *checkpoint.Former) error { return wiring.LeftBehind(ctx, s.cfg, f) })
}

// lookStore opens the store for a look at the checkpoints under other keys; nil: there are
// none. The key's own topic may be missing.
func lookStore(ctx context.Context, cfg *config.Config) (checkpoint.Store, error) {
	if cfg.Checkpoint.Store == store.StoreNone {
		return nil, nil
	}
	exists, err := storeExists(ctx, cfg)
	if err != nil || !exists && cfg.Checkpoint.Store != store.StoreKafka {
		return nil, err
	}
	return wiring.LookStore(ctx, cfg)
}

// unnoted asks whether run would read a slot without a checkpoint, and whether the slot was read.
func (d *doctor) unnoted(ctx context.Context, s *session, v *view) (refused, vanished, err error) {
	kept, err := lookStore(ctx, d.cfg)
	if err != nil {
		return nil, nil, err
	}
	if kept != nil {
		defer kept.Close()
	}
	slot, err := s.unnoted(ctx, v, kept)
	if err != nil {
		return nil, nil, err
	}
	if refused, err = slot.Refused(ctx, s.conn); err != nil || refused != nil {
		return refused, nil, err
	}
	if refused = s.leftBehind(ctx, slot); refused != nil {
		return refused, nil, nil
	}
	vanished, err = slot.Vanished(ctx, s.conn)
	return nil, vanished, err
}
