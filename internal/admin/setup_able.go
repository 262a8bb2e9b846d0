package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// able returns the failure of a later step, before the first change in
// PostgreSQL. The checkpoint store, whose opening may create its topic, is last.
func (s *setup) able(ctx context.Context) error {
	err := s.tablesFit(ctx)
	if err == nil {
		err = failure.Join(s.rehearse(ctx), s.writerExists(ctx), s.streams(ctx))
	}
	if err == nil && !s.polls() {
		err = s.reachCheckpoint(ctx)
	}
	if err != nil {
		return fmt.Errorf("nothing was changed in PostgreSQL: %w", err)
	}
	return nil
}

// streams returns why publication or slot could not be made or used.
func (s *setup) streams(ctx context.Context) error {
	if s.polls() {
		return nil
	}
	return failure.Join(s.mayPublish(ctx), s.mayMakeSlot(ctx))
}

// tablesFit looks at the existing tables: a slot would keep the log for
// nothing.
func (s *setup) tablesFit(ctx context.Context) error {
	s.exists = make(map[pg.Table]bool)
	for _, t := range s.cfg.Source.Tables {
		found, err := s.outboxTable(ctx, t)
		if err == nil && found != nil {
			err = found.unfit
		}
		if err != nil {
			return err
		}
		s.exists[t] = found != nil
		if err := s.execute(ctx, refuseTwin(t)); err != nil {
			return classifyTwin(err)
		}
	}
	return nil
}

// rehearse makes all that a transaction can take back: tables, functions and rights. The
// server alone knows the rights to them: managed services give the right to make roles to
// some unknown to the catalogs. The publication is not made: its creation waits for
// applications' transactions.
func (s *setup) rehearse(ctx context.Context) error {
	session, cfg := *s.session, *s.cfg
	session.cfg = &cfg
	trial := &setup{session: &session, opts: s.opts, exists: s.exists}
	checkpoints := ""
	if !s.polls() && cfg.Checkpoint.Store == store.StorePostgres {
		located, exists, err := store.LocateTable(ctx, s.conn, cfg.Checkpoint.Table)
		if err != nil {
			return fmt.Errorf("checkpoint table %s: %w", cfg.Checkpoint.Table, err)
		}
		cfg.Checkpoint.Table = located
		if !exists {
			checkpoints = store.TableSQL(located)
		}
	}
	tx, err := s.conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("look at what the role may do: %w", err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	return trial.perform(ctx, checkpoints)
}

// perform is rehearse, in the transaction; checkpoints makes the checkpoint table.
func (s *setup) perform(ctx context.Context, checkpoints string) error {
	if err := s.ensureTables(ctx); err != nil {
		return denied(err, "do it as a role that may create it")
	}
	if err := s.ensureEmit(ctx); err != nil {
		return denied(err, "do it as a role that may create it, or as its owner")
	}
	if err := s.execute(ctx, checkpoints); err != nil {
		return denied(fmt.Errorf("create checkpoint table %s: %w", s.cfg.Checkpoint.Table, err), "as a role that may: "+checkpoints+";")
	}
	if err := s.execute(ctx, claimsSQL(s.cfg)...); err != nil {
		return denied(fmt.Errorf("create the table of claim_check: %w", err), "do it as a role that may create it")
	}
	if s.opts.Role != "" {
		err := s.execute(ctx, roleSQL(s.opts.Role, roleAttributes(s.cfg), nil)...)
		if err != nil {
			return denied(fmt.Errorf("set up role %q: %w", s.opts.Role, err),
				"do it as a superuser or, from PostgreSQL 16 on, as a role with CREATEROLE and REPLICATION; or have the role made by who may (`cdc-outbox setup --print`), and leave --role out")
		}
	}
	if s.opts.Role != "" && !s.polls() {
		if err := s.giveRole(ctx, grants(s.cfg, s.opts.Role)); err != nil {
			return denied(err, "do it as a superuser, or as the owner of the tables")
		}
	}
	return denied(s.ensureWriter(ctx), "do it as a superuser, or as the owner of the tables")
}

// denied adds the remedy to the error of a missing right.
func denied(err error, remedy string) error {
	if pgsql.State(err) == pgerrcode.InsufficientPrivilege && failure.RemedyOf(err) == "" {
		return failure.Configf(remedy, "%w", err)
	}
	return err
}

// reachCheckpoint opens the checkpoint store, and refuses another slot's
// checkpoint, and a name under which parked events or an accepted gap would be left
// behind. A missing table is left to openCheckpoint: its schema may be missing, too.
func (s *setup) reachCheckpoint(ctx context.Context) error {
	if s.cfg.Checkpoint.Store == store.StorePostgres {
		if _, exists, err := store.LocateTable(ctx, s.conn, s.cfg.Checkpoint.Table); err != nil || !exists {
			return err
		}
	}
	if err := s.openStore(ctx); err != nil {
		return err
	}
	v, err := s.view(ctx, s.store)
	if err == nil && errors.Is(v.mismatch, checkpoint.ErrOtherSlot) {
		err = v.mismatch
	}
	missing := func(t pg.Table) bool { return !s.exists[t] } // nothing was read of it
	if err == nil && !slices.ContainsFunc(s.cfg.Source.Tables, missing) {
		err = s.renamed(ctx, v, s.store)
	}
	return err
}

// writerExists asks the server; public is known there, too.
func (s *setup) writerExists(ctx context.Context) error {
	if s.opts.Writer == "" || s.opts.Writer == s.opts.Role {
		return nil
	}
	err := catalog.CheckGrantee(ctx, s.conn, s.opts.Writer)
	if pgsql.State(err) == pgerrcode.UndefinedObject {
		return failure.Configf("create the service's role, or correct --writer", "--writer %q: %w", s.opts.Writer, err)
	}
	return err
}

// mayPublish asks for the rights to make a missing publication, or to add the
// tables missing from an existing publication.
func (s *setup) mayPublish(ctx context.Context) error {
	pub, exists, err := catalog.ReadPublication(ctx, s.conn, s.cfg.Source.Publication)
	if err != nil {
		return err
	}
	var infos []catalog.TableInfo // of the existing tables outside the publication
	var lacks []string
	for _, t := range s.cfg.Source.Tables {
		if err := pub.Excepts(t); err != nil {
			return err
		}
		if pub.Publishes(t) {
			continue
		}
		lacks = append(lacks, t.String())
		info, ok, err := catalog.ReadTable(ctx, s.conn, t)
		if err != nil {
			return err
		}
		if ok {
			infos = append(infos, info)
		}
	}
	switch {
	case !exists:
		if err := s.refuseMistaken(ctx); err != nil {
			return err
		}
		return s.mayMakePublication(ctx, infos)
	case len(lacks) > 0:
		return s.mayAdd(ctx, pub, infos, lacks)
	case slices.ContainsFunc(s.cfg.Source.Tables, func(t pg.Table) bool { return !s.exists[t] }): // judged once they are made
		return nil
	}
	var v catalog.View
	if err := v.ReadPublication(ctx, s.conn, s.source()); err != nil {
		return err
	}
	return v.Unfit()
}

// mayAdd asks for the rights to add tables to the publication.
func (s *setup) mayAdd(ctx context.Context, pub catalog.Publication, infos []catalog.TableInfo, lacks []string) error {
	may, err := pub.Owned(ctx, s.conn, infos)
	if err == nil && !may {
		return failure.Configf("do it as a superuser, or as the owner of the publication ("+pub.Owner+") and of the tables",
			"publication %q lacks %s, and the role may not add it: that takes ownership of both", pub.Name, strings.Join(lacks, ", "))
	}
	return err
}

// refuseMistaken refuses to create a publication in place of the publication
// read so far under another name: the next start would take it for recreated.
func (s *setup) refuseMistaken(ctx context.Context) error {
	v := &view{}
	if err := v.ReadSlot(ctx, s.conn, s.source()); err != nil || !v.Exists {
		return err
	}
	if err := loadCheckpoint(ctx, s.cfg, v); err != nil || v.stored == nil {
		return err
	}
	v.mismatch = s.source().MissingPublication(ctx, s.conn, v.stored.Publication)
	return v.mistaken()
}

// mayMakeSlot returns the reason against making the slot, if a slot is to be made.
func (s *setup) mayMakeSlot(ctx context.Context) error {
	_, exists, err := catalog.ReadSlot(ctx, s.conn, s.cfg.Source.Slot)
	if err != nil || exists {
		return err
	}
	if s.cfg.Source.Snapshot == config.SnapshotInitial { // left to the first run
		if !s.cfg.Source.Create {
			return missingSlot(s.cfg)
		}
		return nil
	}
	server, err := catalog.ReadServer(ctx, s.conn)
	if err != nil {
		return err
	}
	return errors.Join(logs(server), roomForSlot(server, s.cfg.Source.Slot), s.mayReplicate(ctx, "create"))
}
