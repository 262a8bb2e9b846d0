package admin

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

// decision is what an operator decides on: a slot that nobody reads, the
// checkpoint, and what the database shows.
type decision struct {
	*view
	cfg   *config.Config
	conn  *pgx.Conn
	store checkpoint.Store // nil: none is there, so that nothing is in it
}

// openDecision looks at everything and changes nothing. It refuses while the slot
// is in use, and one of somebody else.
func openDecision(ctx context.Context, cfg *config.Config) (d *decision, err error) {
	d = &decision{cfg: cfg}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if d.conn, err = connect(ctx, cfg); err != nil {
		return d, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	exists, err := storeExists(ctx, cfg)
	if err == nil && exists {
		d.store, err = openStore(ctx, cfg)
	}
	if err != nil {
		return d, err
	}
	if d.view, err = readView(ctx, d.conn, cfg, d.store); err != nil || !d.seen.Exists {
		return d, err
	}
	return d, refuseSlot(ctx, d.conn, d.seen.Slot, d.server.Database)
}

func (d *decision) close() {
	if d.store != nil {
		d.store.Close()
	}
	if d.conn != nil {
		catalog.Close(d.conn)
	}
}

// ready makes sure that the decision can be saved, before anything is done about
// it. It creates what the store lacks.
func (d *decision) ready(ctx context.Context) (err error) {
	if d.store == nil {
		if d.store, err = openStore(ctx, d.cfg); err != nil {
			return err
		}
	}
	return storeWritable(ctx, d.cfg, d.store, store.Writable)
}

// save stores what was decided.
func (d *decision) save(ctx context.Context, cp checkpoint.Checkpoint) error {
	if err := saveCheckpoint(ctx, d.store, cp); err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	return nil
}
