package admin

import (
	"cmp"
	"context"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
)

// secondReader is the verdict about a slot nobody has noted; see
// store.SecondReader. kept may be nil.
func (s *session) secondReader(ctx context.Context, v *view, kept checkpoint.Store) (verdict, err error) {
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
	seen := checkpoint.Server{Name: s.cfg.Source.Slot, Scope: s.scope(), Exists: v.Exists}
	return store.SecondReader(ctx, s.conn, kept, r, seen, s.cfg.Source.Siblings)
}

// secondReader is why run would not read a slot nobody has noted, if the same
// events are read from another.
func (d *doctor) secondReader(ctx context.Context, s *session, v *view) error {
	var kept checkpoint.Store
	if d.cfg.Checkpoint.Store != store.StoreNone {
		exists, err := storeExists(ctx, d.cfg)
		if err != nil {
			return err
		}
		if exists {
			if kept, err = wiring.OpenStore(ctx, d.cfg); err != nil {
				return err
			}
			defer kept.Close()
		}
	}
	verdict, err := s.secondReader(ctx, v, kept)
	return cmp.Or(err, verdict)
}
