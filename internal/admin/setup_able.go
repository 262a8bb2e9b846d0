package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgerrcode"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/sqlstate"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

// able returns what a later step would fail for, before the first one changes anything.
func (s *setup) able(ctx context.Context) error {
	errs := []error{s.mayGiveRole(ctx), s.writerExists(ctx)}
	if !s.polls() {
		errs = append(errs, s.mayPublish(ctx), s.mayMakeSlot(ctx))
	}
	if err := failure.Join(errs...); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	return nil
}

// mayGiveRole makes or completes the role, and takes that back: managed services give the
// right to roles of which the catalogs do not tell it.
func (s *setup) mayGiveRole(ctx context.Context) error {
	if s.opts.Role == "" {
		return nil
	}
	tx, err := s.conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("look at the right to make roles: %w", err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	err = s.execute(ctx, roleSQL(s.opts.Role, roleAttributes(s.cfg), nil)...)
	if sqlstate.Of(err) == pgerrcode.InsufficientPrivilege {
		return failure.Configf("do it as a superuser or, from PostgreSQL 16 on, as a role with CREATEROLE and REPLICATION; or have the role made by who may (`cdc-outbox setup --print`), and leave --role out",
			"set up role %q: %w", s.opts.Role, err)
	}
	if err != nil {
		return fmt.Errorf("set up role %q: %w", s.opts.Role, err)
	}
	return nil
}

// writerExists asks the server, which also knows public.
func (s *setup) writerExists(ctx context.Context) error {
	if s.opts.Writer == "" || s.opts.Writer == s.opts.Role {
		return nil
	}
	_, err := s.conn.Exec(ctx, `SELECT has_schema_privilege($1::name, 'pg_catalog', 'USAGE')`, s.opts.Writer)
	if sqlstate.Of(err) == pgerrcode.UndefinedObject {
		return failure.Configf("create the service's role, or correct --writer", "--writer %q: %w", s.opts.Writer, err)
	}
	return err
}

// mayPublish asks for the rights to make the publication, if it is missing.
func (s *setup) mayPublish(ctx context.Context) error {
	_, exists, err := catalog.ReadPublication(ctx, s.conn, s.cfg.Source.Publication)
	if err != nil || exists {
		return err
	}
	var infos []catalog.TableInfo // of the tables that are there
	for _, t := range s.cfg.Source.Tables {
		info, ok, err := catalog.ReadTable(ctx, s.conn, t)
		if err != nil {
			return err
		}
		if ok {
			infos = append(infos, info)
		}
	}
	return s.mayMakePublication(ctx, infos)
}

// mayMakeSlot asks for all that the slot takes, if this run is to make it.
func (s *setup) mayMakeSlot(ctx context.Context) error {
	_, exists, err := catalog.ReadSlot(ctx, s.conn, s.cfg.Source.Slot)
	if err != nil || exists || s.cfg.Source.Snapshot == config.SnapshotInitial {
		return err
	}
	server, err := catalog.ReadServer(ctx, s.conn)
	if err != nil {
		return err
	}
	return errors.Join(logs(server), roomForSlot(server, s.cfg.Source.Slot), s.mayReplicate(ctx, "create"))
}
