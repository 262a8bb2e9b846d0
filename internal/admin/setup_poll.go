package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// ensurePolling is what setup does in poll mode: tables, the index of unpublished
// rows, the trigger that tells of new ones, and the role.
func (s *setup) ensurePolling(ctx context.Context) error {
	if err := s.ensureTables(ctx); err != nil {
		return err
	}
	tables, err := readPolled(ctx, s)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if err := s.ensureIndex(ctx, t); err != nil {
			return err
		}
		if err := s.ensureNotify(ctx, t); err != nil {
			return err
		}
	}
	if s.opts.Role == "" {
		return nil
	}
	var grants []string
	for _, t := range tables {
		grants = append(grants, t.Grants(s.opts.Role)...)
	}
	return s.giveRole(ctx, "LOGIN", grants)
}

func readPolled(ctx context.Context, s *setup) ([]*poll.Table, error) {
	router, err := transform.New(s.cfg.Event, s.cfg.Route)
	if err != nil {
		return nil, err
	}
	tables := make([]*poll.Table, len(s.tables))
	for i, name := range s.tables {
		if tables[i], err = poll.ReadTable(ctx, s.conn, s.cfg.Source.Poll, s.cfg.Event, router, name); err != nil {
			return nil, err
		}
	}
	return tables, nil
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
	tables, err := readPolled(ctx, s)
	if err != nil {
		return err
	}
	for _, now := range tables {
		if now.Name == t.Name {
			s.done("index", now.Index, "created", strings.Join(t.Order.Columns, ", "))
		}
	}
	return nil
}

// build creates an index, which takes the time that its table needs. It waits
// for the transactions of others without a limit, because an interrupted CREATE
// INDEX CONCURRENTLY leaves an invalid index behind.
func (s *setup) build(ctx context.Context, sql string) error {
	if err := execute(ctx, s.conn, "SET lock_timeout = 0"); err != nil {
		return err
	}
	defer patient(ctx, s.cfg, s.conn.PgConn(), nil)()
	return errors.Join(execute(ctx, s.conn, sql), execute(ctx, s.conn, "RESET lock_timeout"))
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
	for _, sql := range t.NotifySQL(channel) {
		if err := execute(ctx, s.conn, sql); err != nil {
			return fmt.Errorf("create the trigger of %s: %w", t.Name, err)
		}
	}
	s.done("trigger", t.Name.String(), "created", "notifies "+channel)
	return nil
}

// pollColumns are what a table has for polling, beside the columns of an event.
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
// them, for a table of any size. Marking a row leaves one.
const pollStorage = " WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000)"

// pollScript is Script in poll mode.
func pollScript(cfg *config.Config, opts SetupOptions, tables []pg.Table) string {
	var b strings.Builder
	b.WriteString("-- cdc-outbox: what the connector needs for polling.\n" +
		"-- Run it as the owner of the database, for example: psql -v ON_ERROR_STOP=1 -f setup.sql\n" +
		"-- Not with --single-transaction: an index cannot be created concurrently in one.\n" +
		"-- It is for tables that it creates. For one that exists, run `cdc-outbox setup`, or `cdc-outbox check`,\n" +
		"-- which prints what is missing.\n")
	var grants []string
	for _, name := range tables {
		t := poll.NewTable(cfg.Source.Poll, name)
		writeSection(&b, "Outbox table "+name.String(), createSchema(name), opts.Schema.createTable(cfg, name))
		writeSection(&b, "Index of its unpublished rows", t.IndexSQL())
		if channel := cfg.Source.Poll.Notify; channel != "" {
			writeSection(&b, "Trigger that tells of new rows", t.NotifySQL(channel)...)
		}
		grants = append(grants, t.Grants(opts.Role)...)
	}
	if opts.Role != "" {
		writeSection(&b, "Least-privilege role; then: \\password "+opts.Role, roleSQL(opts.Role, "LOGIN", grants)...)
	}
	return b.String()
}
