package admin

import (
	"context"

	"github.com/cdc-outbox/cdc-outbox/config"
)

// checkpoint compares the stored checkpoint with the database, as run does
// before it streams.
func (d *doctor) checkpoint(ctx context.Context) {
	const name = "checkpoint"
	if d.cfg.Checkpoint.Store == config.StoreNone {
		d.warn(name, "set checkpoint.store to kafka, postgres or file", "checkpoint.store is none: a slot that was recreated or advanced is not noticed")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	conn, err := connect(ctx, d.cfg)
	if err != nil {
		d.skip(name, "no connection to PostgreSQL to compare with")
		return
	}
	defer closeConn(conn)

	v := &view{}
	if err = v.readSlot(ctx, conn, d.cfg); err == nil {
		err = loadCheckpoint(ctx, d.cfg, v)
	}
	if err == nil {
		err = v.readServer(ctx, conn, d.cfg)
	}
	switch {
	case err != nil:
		d.fail(name, err)
	case v.stored == nil:
		d.ok(name, "none yet in %s", storeName(d.cfg))
	case v.mismatch != nil:
		d.fail(name, v.mismatch)
	default:
		d.ok(name, "%s in %s fits the database", v.stored.LSN, storeName(d.cfg))
	}
}
