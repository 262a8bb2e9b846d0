package admin

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
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

// retention checks that the tables can be kept small.
func (d *doctor) retention(ctx context.Context) {
	if d.cfg.Retention.After == 0 {
		return
	}
	for _, t := range d.cfg.Source.Tables {
		name := "retention " + t.String()
		r, err := catalog.ReadRetained(ctx, d.conn, t, d.cfg.Retention.Column)
		switch {
		case err != nil:
			d.fail(name, err)
		case !r.Exists: // said by outboxTable
		case r.Partitioned:
			d.retainedPartitions(name, t, r)
		default:
			d.retainedRows(name, t, r)
		}
	}
}

func (d *doctor) retainedRows(name string, t pg.Table, r catalog.Retained) {
	role := pgsql.Name(d.conn.Config().User)
	switch {
	case r.Column == "":
		d.fail(name, failure.Configf("set retention.column to the column with the time of writing, or: ALTER TABLE "+t.Quoted()+
			" ADD "+pgsql.Name(d.cfg.Retention.Column)+" timestamptz DEFAULT now();", "%s has no column %q", t, d.cfg.Retention.Column))
	case r.Column != "timestamp with time zone" && r.Column != "timestamp without time zone":
		d.fail(name, failure.Configf("name a column of type timestamptz", "column %q of %s is of type %s", d.cfg.Retention.Column, t, r.Column))
	case !r.MayDelete:
		d.fail(name, failure.Configf("GRANT USAGE ON SCHEMA "+pgsql.Name(t.Schema)+" TO "+role+"; GRANT SELECT, DELETE ON "+t.Quoted()+" TO "+role+";",
			"the role may not delete the rows of %s", t))
	default:
		d.ok(name, "published rows go after %s; the table has %s", d.cfg.Retention.After, formatBytes(r.Bytes))
	}
}

func (d *doctor) retainedPartitions(name string, t pg.Table, r catalog.Retained) {
	role := pgsql.Name(d.conn.Config().User)
	switch {
	case !r.ByTime:
		d.fail(name, failure.Configf("partition it by RANGE of the time of writing, or turn retention off",
			"%s is partitioned, but not by ranges of time, so that no partition of it is ever old", t))
		return
	case !r.MayOwn:
		d.fail(name, failure.Configf("GRANT "+pgsql.Name(r.Owner)+" TO "+role+";",
			"partitions of %s can be created and dropped only by its owner", t))
		return
	case !r.MayCreate && d.cfg.Retention.PartitionsAhead > 0:
		d.fail(name, failure.Configf("GRANT CREATE ON SCHEMA "+pgsql.Name(t.Schema)+" TO "+role+";",
			"the role may not create partitions in schema %s", t.Schema))
		return
	}
	d.ok(name, "published partitions go after %s; %d partitions have %s", d.cfg.Retention.After, r.Partitions, formatBytes(r.Bytes))
	if r.HasDefault {
		d.warn(name, "once partitions are created ahead, drop the default partition when it is empty",
			"while %s has a default partition, an old partition is detached under a short exclusive lock", t)
	}
}

// TableStatus is the size of an outbox table, with its partitions and indexes.
type TableStatus struct {
	Name       string `json:"name"`
	Bytes      int64  `json:"bytes"`
	Partitions int    `json:"partitions,omitempty"`
	// Retention is retention.after; empty when off.
	Retention string `json:"retention,omitempty"`
}

// describeTables leaves out missing tables: the publication's part tells of
// them.
func describeTables(ctx context.Context, conn *pgx.Conn, cfg *config.Config) ([]TableStatus, error) {
	var list []TableStatus
	for _, t := range cfg.Source.Tables {
		r, err := catalog.ReadRetained(ctx, conn, t, cfg.Retention.Column)
		if err != nil {
			return list, err
		}
		if !r.Exists {
			continue
		}
		s := TableStatus{Name: t.String(), Bytes: r.Bytes, Partitions: r.Partitions}
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
