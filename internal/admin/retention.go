package admin

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// retentionGrants are retention's privileges on a table, beside the use of the
// schema. For partitions the role must own the table, which setup leaves to a
// person.
func retentionGrants(cfg *config.Config, t pg.Table, to string) []string {
	if cfg.Retention.After == 0 {
		return nil
	}
	return []string{"GRANT SELECT, DELETE ON " + t.Quoted() + to}
}

// retained is what retention, and its operator, need to know of a table.
type retained struct {
	exists, partitioned, hasDefault bool
	byTime                          bool   // partitioned by ranges of a single time
	column                          string // the type of retention.column; empty if there is none
	mayDelete, mayOwn, mayCreate    bool
	owner                           string
	bytes                           int64
	partitions                      int
}

const retainedQuery = `
SELECT c.relkind = 'p',
       EXISTS (SELECT FROM pg_partitioned_table p WHERE p.partrelid = c.oid AND p.partdefid <> 0),
       COALESCE((SELECT p.partstrat = 'r' AND p.partnatts = 1 AND (p.partattrs[0] = 0 OR a.atttypid IN ('timestamptz'::regtype, 'timestamp'::regtype, 'date'::regtype))
                   FROM pg_partitioned_table p LEFT JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
                  WHERE p.partrelid = c.oid), false),
       COALESCE((SELECT format_type(a.atttypid, NULL) FROM pg_attribute a
                  WHERE a.attrelid = c.oid AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped), ''),
       has_schema_privilege(c.relnamespace, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'DELETE'),
       pg_has_role(c.relowner, 'USAGE'), has_schema_privilege(c.relnamespace, 'CREATE'),
       pg_get_userbyid(c.relowner)::text,
       (SELECT sum(pg_total_relation_size(relid)) FROM (
           SELECT c.oid AS relid UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = c.oid) parts)::bigint,
       (SELECT count(*) FROM pg_inherits WHERE inhparent = c.oid)::int
  FROM pg_class c WHERE c.oid = to_regclass($1)`

func readRetained(ctx context.Context, conn *pgx.Conn, cfg *config.Config, t pg.Table) (r retained, err error) {
	rows, err := conn.Query(ctx, retainedQuery, t.Quoted(), cfg.Retention.Column)
	if err != nil {
		return r, fmt.Errorf("look at table %s: %w", t, err)
	}
	_, err = pgx.ForEachRow(rows, []any{&r.partitioned, &r.hasDefault, &r.byTime, &r.column, &r.mayDelete, &r.mayOwn, &r.mayCreate, &r.owner, &r.bytes, &r.partitions},
		func() error {
			r.exists = true
			return nil
		})
	if err != nil {
		return r, fmt.Errorf("look at table %s: %w", t, err)
	}
	return r, nil
}

// retention checks that the tables can be kept small.
func (d *doctor) retention(ctx context.Context) {
	if d.cfg.Retention.After == 0 {
		return
	}
	for _, t := range d.cfg.Source.Tables {
		name := "retention " + t.String()
		r, err := readRetained(ctx, d.conn, d.cfg, t)
		switch {
		case err != nil:
			d.fail(name, err)
		case !r.exists: // said by outboxTable
		case r.partitioned:
			d.retainedPartitions(name, t, r)
		default:
			d.retainedRows(name, t, r)
		}
	}
}

func (d *doctor) retainedRows(name string, t pg.Table, r retained) {
	role := pgsql.Name(d.conn.Config().User)
	switch {
	case r.column == "":
		d.fail(name, failure.Configf("set retention.column to the column with the time of writing, or: ALTER TABLE "+t.Quoted()+
			" ADD "+pgsql.Name(d.cfg.Retention.Column)+" timestamptz DEFAULT now();", "%s has no column %q", t, d.cfg.Retention.Column))
	case r.column != "timestamp with time zone" && r.column != "timestamp without time zone":
		d.fail(name, failure.Configf("name a column of type timestamptz", "column %q of %s is of type %s", d.cfg.Retention.Column, t, r.column))
	case !r.mayDelete:
		d.fail(name, failure.Configf("GRANT USAGE ON SCHEMA "+pgsql.Name(t.Schema)+" TO "+role+"; GRANT SELECT, DELETE ON "+t.Quoted()+" TO "+role+";",
			"the role may not delete the rows of %s", t))
	default:
		d.ok(name, "published rows go after %s; the table has %s", d.cfg.Retention.After, formatBytes(r.bytes))
	}
}

func (d *doctor) retainedPartitions(name string, t pg.Table, r retained) {
	role := pgsql.Name(d.conn.Config().User)
	switch {
	case !r.byTime:
		d.fail(name, failure.Configf("partition it by RANGE of the time of writing, or turn retention off",
			"%s is partitioned, but not by ranges of time, so that no partition of it is ever old", t))
		return
	case !r.mayOwn:
		d.fail(name, failure.Configf("GRANT "+pgsql.Name(r.owner)+" TO "+role+";",
			"partitions of %s can be created and dropped only by its owner", t))
		return
	case !r.mayCreate && d.cfg.Retention.PartitionsAhead > 0:
		d.fail(name, failure.Configf("GRANT CREATE ON SCHEMA "+pgsql.Name(t.Schema)+" TO "+role+";",
			"the role may not create partitions in schema %s", t.Schema))
		return
	}
	d.ok(name, "published partitions go after %s; %d partitions have %s", d.cfg.Retention.After, r.partitions, formatBytes(r.bytes))
	if r.hasDefault {
		d.warn(name, "once partitions are created ahead, drop the default partition when it is empty",
			"while %s has a default partition, an old partition is detached under a short exclusive lock", t)
	}
}

// TableStatus is how large an outbox table is, with its partitions and indexes.
type TableStatus struct {
	Name       string `json:"name"`
	Bytes      int64  `json:"bytes"`
	Partitions int    `json:"partitions,omitempty"`
	// Retention is retention.after; empty when off.
	Retention string `json:"retention,omitempty"`
}

// describeTables leaves out tables that do not exist: the publication's part
// says so.
func describeTables(ctx context.Context, conn *pgx.Conn, cfg *config.Config) ([]TableStatus, error) {
	var list []TableStatus
	for _, t := range cfg.Source.Tables {
		r, err := readRetained(ctx, conn, cfg, t)
		if err != nil {
			return list, err
		}
		if !r.exists {
			continue
		}
		s := TableStatus{Name: t.String(), Bytes: r.bytes, Partitions: r.partitions}
		if cfg.Retention.After > 0 {
			s.Retention = cfg.Retention.After.String()
		}
		list = append(list, s)
	}
	return list, nil
}

// String is the table for people.
func (s TableStatus) String() string {
	text := s.Name + ", " + formatBytes(s.Bytes)
	if s.Partitions > 0 {
		text += fmt.Sprintf(" in %d partitions", s.Partitions)
	}
	if s.Retention != "" {
		text += ", published rows go after " + s.Retention
	}
	return text
}
