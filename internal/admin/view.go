package admin

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// view is the state of checkpoint and database. Its parts are read in the order
// that checkpoint.Server asks for, so that the progress of a running connector
// does not look like a loss: slot, checkpoint, server.
type view struct {
	tables      []pg.Table
	seen        checkpoint.Server
	stored      *checkpoint.Checkpoint // nil: none
	looked      bool                   // for a checkpoint, without an error
	owed        bool                   // the store says that nobody has read the slot yet
	server      catalog.Server
	publication *catalog.Publication // nil: missing
	// mismatch is why the connector cannot go on from the checkpoint, if so.
	mismatch error
}

// readView reads all three parts. A nil store is one that is not there yet.
func readView(ctx context.Context, conn *pgx.Conn, cfg *config.Config, store checkpoint.Store) (*view, error) {
	v := &view{}
	if err := v.readSlot(ctx, conn, cfg); err != nil {
		return nil, err
	}
	v.looked = true
	if store != nil {
		if err := v.load(ctx, store); err != nil {
			return nil, err
		}
	}
	if err := v.readServer(ctx, conn, cfg); err != nil {
		return nil, err
	}
	return v, nil
}

func (v *view) readSlot(ctx context.Context, conn *pgx.Conn, cfg *config.Config) (err error) {
	v.seen.Slot, v.seen.Exists, err = catalog.ReadSlot(ctx, conn, cfg.Source.Slot)
	return err
}

func (v *view) load(ctx context.Context, store checkpoint.Store) error {
	cp, ok, err := store.Load(ctx)
	if err != nil {
		return fmt.Errorf("load checkpoint: %w", err)
	}
	if ok && !cp.Creating {
		v.stored = &cp
	}
	v.looked, v.owed = true, ok && cp.Creating
	return nil
}

// readServer reads the rest and compares it with the checkpoint.
func (v *view) readServer(ctx context.Context, conn *pgx.Conn, cfg *config.Config) (err error) {
	v.tables = cfg.Source.Tables
	pub, ok, err := catalog.ReadPublication(ctx, conn, cfg.Source.Publication)
	if err != nil {
		return err
	}
	if ok {
		v.publication = &pub
		v.seen.Publication = pub.Fingerprint(v.tables)
	}
	if v.server, err = catalog.ReadServer(ctx, conn); err != nil {
		return err
	}
	v.seen.SystemID, v.seen.Timeline, v.seen.Database = v.server.SystemID, v.server.Timeline, v.server.Database
	v.seen.CurrentLSN = v.server.FlushLSN
	v.seen.StoredInside = cfg.Checkpoint.Store == store.StorePostgres
	if v.stored != nil && v.stored.Timeline != v.server.Timeline {
		if v.seen.TimelineSwitch, err = timelineSwitch(ctx, cfg, v.server.Timeline, v.stored.Timeline); err != nil {
			return err
		}
	}
	v.mismatch = v.compare(cfg)
	return nil
}

// compare is nil before a first start: no slot and no checkpoint.
func (v *view) compare(cfg *config.Config) error {
	if v.stored == nil && !v.seen.Exists {
		return nil
	}
	if _, err := checkpoint.Verify(v.stored, v.seen); err != nil {
		return store.OwnFile(err, cfg.Checkpoint, v.stored, v.seen.Slot)
	}
	if err := v.undecided(cfg); err != nil {
		return err
	}
	if v.publication == nil {
		return lostPublication(cfg)
	}
	return nil
}

// undecided is the error of a slot where nobody knows whether the snapshot that
// is asked for was published.
func (v *view) undecided(cfg *config.Config) error {
	if cfg.Source.Snapshot == config.SnapshotInitial && v.seen.Exists && v.looked && v.stored == nil && !v.owed {
		return checkpoint.Undecided(v.seen.Slot)
	}
	return nil
}

func timelineSwitch(ctx context.Context, cfg *config.Config, current, old int32) (pg.LSN, error) {
	repl, err := catalog.ConnectReplication(ctx, cfg.Source.URL.Reveal())
	if err != nil {
		return 0, fmt.Errorf("open replication connection: %w", err)
	}
	defer catalog.Close(repl)
	return catalog.TimelineSwitch(ctx, repl, current, old)
}

// known is the position up to which everything counts as published.
func (v *view) known() pg.LSN {
	if v.stored == nil {
		return v.seen.Slot.ConfirmedFlush
	}
	return max(v.stored.LSN, v.seen.Slot.ConfirmedFlush)
}

func (v *view) scope(cfg *config.Config) string {
	return checkpoint.Scope(v.tables, cfg.Source.Mode == config.ModeMessage, cfg.Source.MessagePrefix)
}
