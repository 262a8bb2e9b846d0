package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/config"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// insufficientPrivilege is the SQLSTATE of what only an owner may do (PostgreSQL
// documentation, "PostgreSQL Error Codes").
const insufficientPrivilege = "42501"

// Teardown drops the slot, the publication and the checkpoint, in this order:
// the slot is what costs the server disk space, and a checkpoint without its
// slot would keep setup from making another. It refuses while the slot is in
// use. Without yes it changes nothing, and the steps say what it would drop.
func Teardown(ctx context.Context, cfg *config.Config, yes bool) (Steps, error) {
	if cfg.Source.Mode == config.ModePoll {
		return teardownPolling(ctx, cfg, yes)
	}
	conn, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer closeConn(conn)

	t := teardown{cfg: cfg, conn: conn, yes: yes}
	for _, step := range []func(context.Context) error{t.slot, t.publication, t.checkpoint, t.emit} {
		if err := step(ctx); err != nil {
			return t.steps, err
		}
	}
	if !yes && t.found {
		return t.steps, failure.Configf("cdc-outbox teardown --yes", "nothing was dropped: events that were not published yet would be lost with the slot")
	}
	return t.steps, nil
}

type teardown struct {
	cfg   *config.Config
	conn  *pgx.Conn
	yes   bool
	found bool // something to drop
	steps Steps
}

func (t *teardown) slot(ctx context.Context) error {
	name := t.cfg.Source.Slot
	slot, ok, err := wal.ReadSlot(ctx, t.conn, name)
	if err != nil {
		return err
	}
	if ok {
		server, err := wal.ReadServer(ctx, t.conn)
		if err != nil {
			return err
		}
		if err := refuseSlot(ctx, t.conn, slot, server.Database); err != nil {
			return err
		}
	}
	return t.drop("slot", name, ok, func() error { return wal.DropSlot(ctx, t.conn, name) })
}

func (t *teardown) publication(ctx context.Context) error {
	name := t.cfg.Source.Publication
	_, ok, err := wal.ReadPublication(ctx, t.conn, name)
	if err != nil {
		return err
	}
	sql := "DROP PUBLICATION " + wal.QuoteIdentifier(name)
	return t.drop("publication", name, ok, func() error {
		err := execute(ctx, t.conn, sql)
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == insufficientPrivilege {
			return failure.Configf("as its owner: "+sql+"; then run teardown --yes again", "%w", err)
		}
		return err
	})
}

// emit says what becomes of the functions that write messages: like the tables,
// they are the applications'.
func (t *teardown) emit(ctx context.Context) error {
	if t.cfg.Source.Mode != config.ModeMessage {
		return nil
	}
	for _, f := range emitFunctions(t.cfg) {
		state, schema, err := f.find(ctx, t.conn, t.cfg)
		if err != nil {
			return err
		}
		if state != emitMissing {
			t.steps = append(t.steps, Step{"function", f.signature(schema), "kept", "applications may call it; events go nowhere from now on"})
		}
	}
	return nil
}

// drop records a step and, if told to, does it.
func (t *teardown) drop(object, name string, exists bool, do func() error) error {
	step := Step{Object: object, Name: name, Action: "missing"}
	if exists {
		t.found = true
		step.Action = "would be dropped"
	}
	if exists && t.yes {
		if err := do(); err != nil {
			return fmt.Errorf("drop %s %q: %w", object, name, err)
		}
		step.Action = "dropped"
	}
	t.steps = append(t.steps, step)
	return nil
}

// checkpoint forgets the stored position; its topic or table may be others'
// too, and stays.
func (t *teardown) checkpoint(ctx context.Context) error {
	v := &view{}
	if err := loadCheckpoint(ctx, t.cfg, v); err != nil {
		return err
	}
	return t.drop("checkpoint", storeName(t.cfg), v.stored != nil, func() error {
		store, err := openStore(ctx, t.cfg)
		if err != nil {
			return err
		}
		defer store.Close()
		return checkpoint.Forget(ctx, store)
	})
}
