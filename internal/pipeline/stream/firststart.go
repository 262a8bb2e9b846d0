package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// bind checks before the stream whether the tables have the columns required by
// the configuration, and messages the fields. A failure ends a first start, and
// any start if bad events do not stop the connector: a wrong name would make every
// event bad. In all other cases the instance is not ready, and the stream will
// tell, because it may hold rows from before a change of the table.
func (s *source) bind(ctx context.Context, sql *pgx.Conn) error {
	if s.opts.Messages {
		if err := s.router.BindMessages(len(s.opts.Tables) == 0); err != nil {
			return err
		}
	}
	for _, t := range s.opts.Tables {
		rel, ok, err := catalog.ReadSent(ctx, sql, t, s.opts.Publication)
		if err == nil && ok { // ReadTables reports a missing table
			err = s.router.Bind(rel)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// suffice is bind of the tables for the monitor, beside the stream.
func (s *source) suffice(ctx context.Context, sql *pgx.Conn) error {
	for _, t := range s.opts.Tables {
		rel, ok, err := catalog.ReadSent(ctx, sql, t, s.opts.Publication)
		if err == nil && ok {
			_, err = s.router.Needed(rel)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// describe reads the columns of a table in the stream, on a connection of its own: the
// monitor has the session's.
func (s *source) describe(ctx context.Context, oid uint32) (*pg.Relation, error) {
	sql, err := catalog.Connect(ctx, s.opts.URL)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer catalog.Close(sql)
	return catalog.DescribeColumns(ctx, sql, oid)
}

// unread is why a slot without a checkpoint is not to be read, or not to be made:
// the Beginning is of another server, the slot was read and is gone, or another
// slot has the same events.
func (s *source) unread(ctx context.Context, sql *pgx.Conn, seen checkpoint.Server) error {
	if s.begun != nil {
		server, err := catalog.ReadServer(ctx, sql)
		if err != nil {
			return err
		}
		seen.SystemID, seen.Database = server.SystemID, server.Database
		if err := s.begun.Belongs(&seen); err != nil {
			return err
		}
	}
	if !seen.Exists && s.held != 0 { // a new slot would leave out everything committed since
		return failure.Lossf("find out what dropped it, such as its last reader (Debezium does with slot.drop.on.stop); then "+catalog.AcceptGap,
			"slot %q is gone: another process read it while this one stood by, and had confirmed %s", s.opts.Slot, s.held)
	}
	return s.refused(ctx, sql, seen)
}

// create makes first the publication, then the slot, for a first start: a slot's
// position must not lie before its publication. It holds the snapshot at the
// slot's position if configured. For a snapshot or exactly-once delivery, the
// store notes first, before the slot exists, that nobody has read the slot.
func (s *source) create(ctx context.Context, sql *pgx.Conn, repl *pgconn.PgConn, h *acquired) error {
	opts := s.opts
	if !opts.Create {
		remedy := "run `cdc-outbox setup`, or set source.create: true"
		if opts.Snapshot {
			remedy = catalog.SnapshotWithSlot
		}
		return failure.Configf(remedy, "slot %s does not exist, and source.create is false", opts.Slot)
	}
	server, err := catalog.ReadServer(ctx, sql)
	if err != nil {
		return err
	}
	if err := s.ensurePublication(ctx, sql); err != nil {
		return yieldTo(err)
	}
	_, view, err := s.inspect(ctx, sql)
	if err != nil {
		return err
	}
	h.horizon = view.Horizon
	snapshot := opts.Snapshot
	if snapshot || s.transactions != nil {
		begun := checkpoint.Beginning(server, opts.Slot)
		if err := s.checkpointer.note(ctx, begun); err != nil {
			return err
		}
		s.begun = &begun
	}
	created := s.waitForCreation(ctx, repl)
	start, name, err := catalog.CreateSlot(ctx, repl, opts.Slot, server.Version,
		catalog.SlotOptions{ExportSnapshot: snapshot, Failover: true})
	created()
	if err != nil {
		return yieldTo(err)
	}
	s.log.Info("created slot", zap.String("slot", opts.Slot), zap.Stringer("start", start))
	if !snapshot {
		return nil
	}
	h.snapshot, err = catalog.HoldSnapshot(ctx, opts.URL, name)
	return err
}

// yieldTo turns the error of a creation, lost to a faster instance, into that of a
// slot active elsewhere: a moment ago nothing was there.
func yieldTo(err error) error {
	// The error depends on the time between the two creations.
	if code := pgsql.State(err); code == pgerrcode.DuplicateObject || code == pgerrcode.UniqueViolation {
		return fmt.Errorf("%w: %w", catalog.ErrSlotActive, err)
	}
	return err
}

func (s *source) ensurePublication(ctx context.Context, sql *pgx.Conn) error {
	name := s.opts.Publication
	if _, ok, err := catalog.ReadPublication(ctx, sql, name); ok || err != nil {
		return err
	}
	infos, err := catalog.ReadTables(ctx, sql, s.opts.Tables)
	if err != nil {
		return err
	}
	for _, t := range infos {
		if errs := catalog.CheckTable(t, s.opts.Tables); len(errs) > 0 {
			return errors.Join(errs...)
		}
	}
	if err := catalog.CreatePublication(ctx, sql, name, infos); err != nil {
		return err
	}
	s.log.Info("created publication", zap.String("publication", name))
	return nil
}
