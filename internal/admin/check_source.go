package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/sqltext"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// outboxTables checks that the tables are there, readable by logical
// replication, and have the columns that the configuration needs.
func (d *doctor) outboxTables(ctx context.Context) {
	tables := d.cfg.Source.Tables
	d.tables = tables
	d.needed = make(map[pg.Table][]string, len(tables))
	for _, t := range tables {
		d.outboxTable(ctx, t)
	}
}

func (d *doctor) outboxTable(ctx context.Context, t pg.Table) {
	name := "table " + t.String()
	info, ok, err := catalog.ReadTable(ctx, d.conn, t)
	switch {
	case err != nil:
		d.fail(name, err)
	case !ok:
		d.fail(name, failure.Configf("create it with `cdc-outbox setup`, or correct source.tables", "table %s does not exist", t))
	default:
		if errs := catalog.CheckTable(info, d.tables); len(errs) > 0 {
			d.fail(name, errors.Join(errs...))
			return
		}
		d.infos = append(d.infos, info)
		d.columns(ctx, t)
		d.snapshotRights(ctx, t)
	}
}

// columns binds the router to the table, and notes which columns it cannot do
// without.
func (d *doctor) columns(ctx context.Context, t pg.Table) {
	name := "columns " + t.String()
	rel, _, err := catalog.ReadColumns(ctx, d.conn, t)
	if err != nil {
		d.fail(name, err)
		return
	}
	router, err := transform.New(d.cfg.Event, d.cfg.Route)
	if err == nil {
		d.needed[t], err = router.Needed(rel)
	}
	if err != nil {
		d.fail(name, err)
		return
	}
	d.ok(name, "%s", strings.Join(d.needed[t], ", "))
	d.routes(ctx, catalog.Snapshot{Table: t, Relation: rel})
}

// snapshotRights: decoding asks for no privilege on a table, reading it does.
func (d *doctor) snapshotRights(ctx context.Context, t pg.Table) {
	if d.cfg.Source.Snapshot != config.SnapshotInitial {
		return
	}
	name := "privileges " + t.String()
	var may, hidden bool
	err := d.conn.QueryRow(ctx, `SELECT has_schema_privilege($1, 'USAGE') AND has_table_privilege($2, 'SELECT'), row_security_active($2)`,
		t.Schema, t.Quoted()).Scan(&may, &hidden)
	role := sqltext.Name(d.conn.Config().User)
	switch {
	case err != nil:
		d.fail(name, fmt.Errorf("read privileges: %w", err))
	case !may:
		d.fail(name, failure.Configf("GRANT USAGE ON SCHEMA "+sqltext.Name(t.Schema)+" TO "+role+"; GRANT SELECT ON "+t.Quoted()+" TO "+role+";",
			"source.snapshot is initial, and the role may not read %s", t))
	case hidden:
		d.fail(name, failure.Configf("ALTER ROLE "+role+" WITH BYPASSRLS;",
			"source.snapshot is initial, and row-level security would hide rows of %s from the role", t))
	default:
		d.ok(name, "the role may read the table for the snapshot")
	}
}

func (d *doctor) publication(ctx context.Context) {
	const name = "publication"
	pub, ok, err := catalog.ReadPublication(ctx, d.conn, d.cfg.Source.Publication)
	if err != nil {
		d.fail(name, err)
		return
	}
	if !ok {
		d.missingPublication(ctx)
		return
	}
	failures, warnings := catalog.CheckPublication(pub, d.infos, d.needed)
	d.leftOut(pub)
	for _, w := range warnings {
		d.warn(name, failure.RemedyOf(w), "%s", w)
	}
	if len(failures) > 0 {
		d.fail(name, errors.Join(failures...))
		return
	}
	d.ok(name, "%s publishes %s", pub.Name, operations(pub))
}

// leftOut mentions column lists: a header whose column is optional would be
// missing without a word.
func (d *doctor) leftOut(pub catalog.Publication) {
	for _, m := range pub.Tables {
		if m.Columns != nil && slices.Contains(d.tables, m.Table) {
			d.warn("publication", "", "of table %s only these columns are published: %s", m.Table, strings.Join(m.Columns, ", "))
		}
	}
}

func operations(p catalog.Publication) string {
	var list []string
	for _, o := range []struct {
		name string
		on   bool
	}{{"insert", p.Insert}, {"update", p.Update}, {"delete", p.Delete}, {"truncate", p.Truncate}} {
		if o.on {
			list = append(list, o.name)
		}
	}
	return or(strings.Join(list, ", "), "nothing")
}

// missingPublication is a failure unless run may and can create it.
func (d *doctor) missingPublication(ctx context.Context) {
	const name = "publication"
	if d.slot != nil {
		d.fail(name, lostPublication(d.cfg))
		return
	}
	missing := missingPublication(d.cfg, d.infos)
	if !d.cfg.Source.Create {
		d.fail(name, fmt.Errorf("%w, and source.create is false", missing))
		return
	}
	may, err := d.mayCreatePublication(ctx)
	switch {
	case err != nil:
		d.fail(name, err)
	case !may:
		d.fail(name, fmt.Errorf("%w, and the role may not create it: that takes CREATE on the database and ownership of the tables", missing))
	default:
		d.ok(name, "%s; run will create it", missing)
	}
}

// missingPublication is the error of a publication that is not there yet.
func missingPublication(cfg *config.Config, infos []catalog.TableInfo) error {
	remedy := "run `cdc-outbox setup` as the tables' owner"
	if len(infos) > 0 || len(cfg.Source.Tables) == 0 {
		remedy += ", or: " + catalog.CreatePublicationSQL(cfg.Source.Publication, infos) + ";"
	}
	return failure.Configf(remedy, "publication %q does not exist", cfg.Source.Publication)
}

// lostPublication is the error of a publication that is not there although its
// slot is. Messages do not pass through it, so nothing is lost where there are
// no tables.
func lostPublication(cfg *config.Config) error {
	if len(cfg.Source.Tables) == 0 {
		return failure.Configf("run `cdc-outbox setup`, or: "+catalog.CreatePublicationSQL(cfg.Source.Publication, nil)+";",
			"slot %q exists but publication %q does not; its messages are kept, but up to PostgreSQL 17 the server cannot decode past changes of tables without it",
			cfg.Source.Slot, cfg.Source.Publication)
	}
	return failure.Lossf(gapRemedy, "slot %q exists but publication %q does not: events committed meanwhile are lost to the stream",
		cfg.Source.Slot, cfg.Source.Publication)
}

func (d *doctor) mayCreatePublication(ctx context.Context) (bool, error) {
	var may bool
	err := d.conn.QueryRow(ctx, `SELECT has_database_privilege(current_database(), 'CREATE')`).Scan(&may)
	for _, info := range d.infos {
		if err == nil && may {
			err = d.conn.QueryRow(ctx, `SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = $1`, info.OID).Scan(&may)
		}
	}
	if err != nil {
		return false, fmt.Errorf("read privileges: %w", err)
	}
	return may, nil
}
