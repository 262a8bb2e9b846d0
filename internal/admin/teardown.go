package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
)

// Teardown drops the checkpoint, the slot and, unless somebody else may need
// it, the publication. Teardown refuses while the slot is in use, and drops
// all or nothing. Without yes it changes nothing, and the steps are the plan.
//
// The order is for a step's failure. A slot without its checkpoint is still
// readable, and another teardown can drop the rest. A checkpoint without its
// slot, or a slot without its publication, would look like a loss.
func Teardown(ctx context.Context, cfg *config.Config, yes bool) (Steps, error) {
	session, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer session.close()
	t := teardown{session: session, yes: yes}
	defer t.close()
	loss := ""
	if t.polls() { // all or none
		if err := pgx.BeginFunc(ctx, t.conn, func(pgx.Tx) error { return t.do(ctx, t.planPolling) }); err != nil {
			return nil, untouched(err)
		}
	} else {
		loss = ": events that were not published yet would be lost with the slot"
		if err := t.do(ctx, t.writable, t.planCheckpoint, t.planSlot, t.planPublication, t.planEmit); err != nil {
			return t.steps, err
		}
	}
	t.steps = append(t.steps, t.kept...)
	if !yes && slices.ContainsFunc(t.plan, func(o object) bool { return o.exists }) {
		return t.steps, failure.Configf("repeat it with --yes", "nothing was dropped%s", loss)
	}
	return t.steps, nil
}

// do carries the plans out once all are made.
func (t *teardown) do(ctx context.Context, plans ...func(context.Context) error) error {
	for _, plan := range plans {
		if err := plan(ctx); err != nil {
			return untouched(err)
		}
	}
	return t.carryOut(ctx)
}

// untouched adds to an error that nothing was dropped.
func untouched(err error) error { return fmt.Errorf("nothing was dropped: %w", err) }

// object is an object for teardown to drop.
type object struct {
	kind, name string
	exists     bool
	drop       func(context.Context) error
}

type teardown struct {
	*session
	store checkpoint.Store // nil: there is none, and so no checkpoint
	yes   bool

	server catalog.Server // not in poll mode

	plan  []object
	kept  Steps // the remaining objects
	steps Steps
}

func (t *teardown) close() {
	if t.store != nil {
		t.store.Close()
	}
}

// carryOut drops the planned objects, if told to.
func (t *teardown) carryOut(ctx context.Context) error {
	for _, o := range t.plan {
		step := Step{Object: o.kind, Name: o.name, Action: "missing"}
		if o.exists {
			step.Action = "would be dropped"
		}
		if o.exists && t.yes {
			if err := o.drop(ctx); err != nil {
				return unfinished(fmt.Errorf("drop %s %q: %w", o.kind, o.name, err))
			}
			step.Action = "dropped"
		}
		t.steps = append(t.steps, step)
	}
	return nil
}

// unfinished tells the way on after an error during the drop.
func unfinished(err error) error {
	remedy := "repeat it, which drops the rest"
	if first := failure.RemedyOf(err); first != "" {
		remedy = first + "; then " + remedy
	}
	return &failure.Error{Class: failure.ClassOf(err), Remedy: remedy, Err: err}
}

// writable refuses a read-only server.
func (t *teardown) writable(ctx context.Context) error {
	readOnly, err := catalog.ReadOnly(ctx, t.conn)
	if err != nil {
		return err
	}
	if readOnly {
		return failure.Configf("connect to the primary (target_session_attrs=read-write in source.url), and leave default_transaction_read_only off for the role",
			"the session is read-only")
	}
	t.server, err = catalog.ReadServer(ctx, t.conn)
	return err
}

// planCheckpoint plans to forget the stored position. Its topic or table stays:
// others may use it too.
func (t *teardown) planCheckpoint(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	found, err := t.loadCheckpoint(ctx)
	if err != nil {
		by := "to do without the checkpoint: repeat it with --set checkpoint.store=none, which drops the rest; the checkpoint stays, and says that the slot is lost (exit code 3) if it is used again"
		if remedy := failure.RemedyOf(err); remedy != "" {
			by = remedy + "; or, " + by
		}
		return &failure.Error{Class: failure.ClassOf(err), Remedy: by, Err: fmt.Errorf("the checkpoint in %s: %w", storeName(t.cfg), err)}
	}
	t.plan = append(t.plan, object{"checkpoint", "position in " + storeName(t.cfg), found, func(ctx context.Context) error {
		return written(ctx, func(ctx context.Context) error { return store.Forget(ctx, t.store) })
	}})
	return nil
}

// loadCheckpoint leaves the store open for forgetting the checkpoint, and makes
// sure of the right to do so.
func (t *teardown) loadCheckpoint(ctx context.Context) (found bool, err error) {
	exists, err := storeExists(ctx, t.cfg)
	if err != nil || !exists {
		return false, err
	}
	if t.store, err = wiring.OpenStore(ctx, t.cfg); err != nil {
		return false, err
	}
	cp, found, err := t.store.Load(ctx)
	if err != nil || !found {
		return false, err
	}
	if err := t.owns(cp); err != nil {
		return true, err
	}
	return true, storeWritable(ctx, t.cfg, t.store, store.Forgettable)
}

// owns refuses a checkpoint of another connector under the same key: two
// servers may have databases and slots of the same names.
func (t *teardown) owns(cp checkpoint.Checkpoint) error {
	s, slot := t.server, t.cfg.Source.Slot
	if cp.Owner() == (checkpoint.Owner{SystemID: s.SystemID, Database: s.Database, Slot: slot}) {
		return nil
	}
	return failure.Configf("correct source.url, or give each connector a checkpoint.key of its own; "+
		"if the checkpoint is this one's, and its server was replaced: cdc-outbox setup --accept-gap --yes makes it fit, and then teardown drops it",
		"it belongs to slot %q of database %q on the server with system identifier %s; this is slot %q of database %q on %s",
		cp.Slot, cp.Database, cp.SystemID, slot, s.Database, s.SystemID)
}

func (t *teardown) planSlot(ctx context.Context) error {
	name := t.cfg.Source.Slot
	slot, ok, err := catalog.ReadSlot(ctx, t.conn, name)
	if err != nil {
		return err
	}
	if ok {
		if err := refuseSlot(ctx, t.conn, slot, t.server.Database); err != nil {
			return err
		}
		if err := t.mayReplicate(ctx, "drop"); err != nil {
			return err
		}
	}
	t.plan = append(t.plan, object{"slot", name, ok, t.dropSlot})
	return nil
}

// dropSlot drops the slot. The error names a holder who came in the meantime.
func (t *teardown) dropSlot(ctx context.Context) error {
	name := t.cfg.Source.Slot
	err := catalog.DropSlot(ctx, t.conn, name)
	if err == nil {
		return nil
	}
	slot, ok, readErr := catalog.ReadSlot(ctx, t.conn, name)
	switch {
	case readErr != nil:
		return err
	case !ok: // another teardown was faster
		return nil
	case slot.Active:
		return errors.Join(refuseSlot(ctx, t.conn, slot, slot.Database), err)
	}
	return err
}

// othersOf names other possible users of the publication, or "". Without the publication,
// its readers stop with a loss.
func (t *teardown) othersOf(ctx context.Context, pub catalog.Publication) (string, error) {
	if beyond := pub.Beyond(t.cfg.Source.Tables); beyond != "" {
		return "it publishes more than source.tables, so it may be somebody else's: " + beyond, nil
	}
	slots, err := catalog.OtherSlots(ctx, t.conn, t.cfg.Source.Slot)
	if err != nil || len(slots) == 0 {
		return "", err
	}
	return "other slots of this database may read it: " + strings.Join(slots, ", "), nil
}

func (t *teardown) planPublication(ctx context.Context) error {
	name := t.cfg.Source.Publication
	pub, ok, err := catalog.ReadPublication(ctx, t.conn, name)
	if err != nil {
		return err
	}
	sql := "DROP PUBLICATION IF EXISTS " + pgsql.Name(name)
	if ok {
		users, err := t.othersOf(ctx, pub)
		if err != nil {
			return err
		}
		if users != "" {
			t.kept = append(t.kept, Step{"publication", name, "kept", users + "; if nobody needs it any more: " + sql})
			return nil
		}
		owns, err := pub.Owned(ctx, t.conn, nil)
		if err != nil {
			return err
		}
		if !owns {
			return failure.Configf("run teardown as "+pub.Owner+" or a superuser (source.url), or let this role own it: ALTER PUBLICATION "+
				pgsql.Name(name)+" OWNER TO "+pgsql.Name(t.conn.Config().User)+";",
				"publication %q can only be dropped by its owner, %s", name, pub.Owner)
		}
	}
	t.plan = append(t.plan, object{"publication", name, ok, func(ctx context.Context) error {
		err := t.execute(ctx, sql)
		if pgsql.State(err) == pgerrcode.InsufficientPrivilege {
			return failure.Configf("as its owner: "+sql, "%w", err)
		}
		return err
	}})
	return nil
}

// planEmit tells the fate of the functions that write messages: like the tables,
// they are the applications'.
func (t *teardown) planEmit(ctx context.Context) error {
	if t.cfg.Source.Mode != config.ModeMessage {
		return nil
	}
	for _, f := range emitFunctions(t.cfg) {
		state, schema, err := f.find(ctx, t.conn, t.cfg)
		if err != nil {
			return err
		}
		if state != emitMissing {
			t.kept = append(t.kept, Step{"function", f.signature(schema), "kept", "applications may call it; events go nowhere from now on"})
		}
	}
	return nil
}
