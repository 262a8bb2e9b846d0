package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
)

// ensurePolling is setup's work in poll mode beside tables and role: the index
// of unpublished rows, and the trigger telling of new ones.
func (s *setup) ensurePolling(ctx context.Context) error {
	return s.polled(ctx, func(t *poll.Table) error {
		if err := s.ensureIndex(ctx, t); err != nil {
			return err
		}
		return s.ensureNotify(ctx, t)
	})
}

func (s *setup) ensurePollRole(ctx context.Context) error {
	grants := append([]string{grantConnect(s.opts.Role)}, claimsGrants(s.cfg, s.opts.Role)...)
	err := s.polled(ctx, func(t *poll.Table) error {
		grants = append(grants, t.Grants(s.opts.Role)...)
		return nil
	})
	if err != nil || s.opts.Role == "" {
		return err
	}
	return s.giveRole(ctx, grants)
}

func (s *setup) ensureIndex(ctx context.Context, t *poll.Table) error {
	if t.Index != "" {
		s.done("index", t.Index, "exists", "")
		return nil
	}
	if t.Building() {
		return t.MissingIndex()
	}
	if err := s.build(ctx, t.IndexSQL()); err != nil {
		return fmt.Errorf("create the index of unpublished rows of %s: %w", t.Name, err)
	}
	now, err := s.readPolled(ctx, t.Name)
	if err == nil {
		s.done("index", now.Index, "created", strings.Join(t.Order.Columns, ", "))
	}
	return err
}

// build creates an index, for as long as the table takes. build waits for the
// transactions of others without a limit, because an interrupted CREATE INDEX
// CONCURRENTLY leaves an invalid index behind.
func (s *setup) build(ctx context.Context, sql string) error {
	if err := s.execute(ctx, "SET lock_timeout = 0"); err != nil {
		return err
	}
	defer s.patient(ctx, s.conn.PgConn(), nil)()
	return errors.Join(s.execute(ctx, sql), s.execute(ctx, "RESET lock_timeout"))
}

func (s *setup) ensureNotify(ctx context.Context, t *poll.Table) error {
	channel := s.cfg.Source.Poll.Notify
	if channel == "" {
		return nil
	}
	there, err := t.Notifies(ctx, s.conn, channel)
	if err != nil {
		return err
	}
	if there {
		s.done("trigger", t.Name.String(), "exists", "notifies "+channel)
		return nil
	}
	if prepares, err := catalog.Prepares(ctx, s.conn); err != nil {
		return err
	} else if prepares && !s.opts.Notify {
		s.done("trigger", t.Name.String(), "left out", notifyBreaks+"; if no application prepares such transactions: cdc-outbox setup --notify")
		return nil
	}
	if err := s.execute(ctx, t.NotifySQL(channel)...); err != nil {
		return fmt.Errorf("create the trigger of %s: %w", t.Name, err)
	}
	s.done("trigger", t.Name.String(), "created", "notifies "+channel)
	return nil
}

// notifyBreaks is the trigger's effect with max_prepared_transactions above 0.
const notifyBreaks = "max_prepared_transactions is not 0, and PostgreSQL refuses PREPARE TRANSACTION where the trigger has notified"

// pollColumns are a table's columns for polling, beside an event's.
func pollColumns(cfg *config.Config) []column {
	p := cfg.Source.Poll
	cols := []column{{poll.SequenceColumn, "bigint NOT NULL GENERATED ALWAYS AS IDENTITY"}}
	if p.AfterPublish == poll.AfterPublishDelete {
		return cols
	}
	return append(cols,
		column{p.Published, "boolean NOT NULL DEFAULT false"},
		column{p.PublishedAt, "timestamptz"})
}

// pollStorage makes autovacuum remove dead versions after a fixed number of
// them, for a table of any size. Marking a row leaves a dead version.
const pollStorage = " WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000)"

// pollScript is Script in poll mode.
func pollScript(cfg *config.Config, opts SetupOptions) (string, error) {
	var b strings.Builder
	b.WriteString("-- cdc-outbox: what the connector needs for polling.\n" +
		"-- Run it as the owner of the database, for example: psql -v ON_ERROR_STOP=1 -f setup.sql\n" +
		"-- Not with --single-transaction: an index cannot be created concurrently in one.\n" +
		"-- It is for tables that it creates. For one that exists, run `cdc-outbox setup`, or `cdc-outbox check`,\n" +
		"-- which prints what is missing.\n")
	writeEnvironment(&b)
	writeClaims(&b, cfg)
	grants := append([]string{grantConnect(opts.Role)}, claimsGrants(cfg, opts.Role)...)
	for _, name := range cfg.Source.Tables {
		t := poll.NewTable(cfg.Source.Poll, name)
		writeSection(&b, "Outbox table "+name.String(), refuseTwin(name), createSchema(name), opts.Schema.createTable(cfg, name))
		writeSection(&b, "Index of its unpublished rows", t.IndexSQL())
		if channel := cfg.Source.Poll.Notify; channel != "" {
			sql := t.NotifySQL(channel)
			if !opts.Notify {
				sql = []string{doUnless("SELECT WHERE current_setting('max_prepared_transactions')::int > 0", sql...)}
			}
			writeSection(&b, "Trigger that tells of new rows. PostgreSQL refuses PREPARE TRANSACTION where it has notified", sql...)
		}
		grants = append(grants, t.Grants(opts.Role)...)
	}
	err := writeRoles(&b, cfg, opts, grants)
	return b.String(), err
}
