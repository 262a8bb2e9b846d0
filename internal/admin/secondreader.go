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
		Reading: r, Siblings: s.cfg.Source.Siblings, Store: kept, Saves: s.cfg.Checkpoint.Store != store.StoreNone, Begun: v.begun != nil,
	}, nil
}

// unnoted asks whether run would read a slot without a checkpoint, and whether the slot was read.
func (d *doctor) unnoted(ctx context.Context, s *session, v *view) (refused, vanished, err error) {
	var kept checkpoint.Store
	if d.cfg.Checkpoint.Store != store.StoreNone {
		exists, err := storeExists(ctx, d.cfg)
		if err != nil {
			return nil, nil, err
		}
		if exists {
			if kept, err = wiring.OpenStore(ctx, d.cfg); err != nil {
				return nil, nil, err
			}
			defer kept.Close()
		}
	}
	slot, err := s.unnoted(ctx, v, kept)
	if err != nil {
		return nil, nil, err
	}
	if refused, err = slot.Refused(ctx, s.conn); err != nil || refused != nil {
		return refused, nil, err
	}
	vanished, err = slot.Vanished(ctx, s.conn)
	return nil, vanished, err
}
