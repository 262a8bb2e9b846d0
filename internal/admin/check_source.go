package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// outboxTables checks that the tables exist, are readable by logical
// replication, and have the columns the configuration needs.
func (d *doctor) outboxTables(ctx context.Context) {
	d.needed = make(map[pg.Table][]string)
	for _, t := range d.cfg.Source.Tables {
		name := "table " + t.String()
		found, err := d.outboxTable(ctx, t)
		switch {
		case err != nil:
			d.fail(name, err)
			continue
		case found == nil:
			d.fail(name, catalog.Missing(ctx, d.conn, t))
			continue
		}
		d.namesake(ctx, name, t)
		d.infos = append(d.infos, found.TableInfo)
		d.needed[t] = found.needed
		if name = "columns " + t.String(); found.unfit != nil {
			d.fail(name, found.unfit)
		} else {
			d.ok(name, "%s", strings.Join(found.needed, ", "))
			d.routes(ctx, catalog.Snapshot{Table: t, Relation: found.relation})
		}
		d.rights(ctx, t)
	}
}

// namesake warns of another table with a name differing in case only: events
// written there go unnoticed.
func (d *doctor) namesake(ctx context.Context, name string, t pg.Table) {
	var meant *catalog.MissingTable
	err := catalog.Pooled(ctx, d.conn, func() (err error) {
		meant, err = catalog.FindNamesake(ctx, d.conn, t)
		return err
	})
	switch {
	case err != nil:
		d.fail(name, err)
	case meant.CaseOnly:
		d.warn(name, "if the application writes to that one: "+catalog.InSourceTables(meant.Near)+"; and drop the other",
			"beside table %s there is table %s, whose name differs in upper and lower case only", t, meant.Near)
	}
}

// outboxTable is an existing, publishable table.
type outboxTable struct {
	catalog.TableInfo
	relation *pg.Relation // as in the stream
	needed   []string     // the columns events cannot do without
	unfit    error        // why the columns do not suffice, if so
}

// outboxTable returns nil for a missing table. Its errors are those of an
// unreadable table.
func (s *session) outboxTable(ctx context.Context, t pg.Table) (*outboxTable, error) {
	info, ok, err := catalog.ReadTable(ctx, s.conn, t)
	if err != nil || !ok {
		return nil, err
	}
	if errs := catalog.CheckTable(info, s.cfg.Source.Tables); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	found := &outboxTable{TableInfo: info}
	if found.relation, _, err = catalog.ReadSent(ctx, s.conn, t, s.cfg.Source.Publication); err != nil {
		return nil, err
	}
	all, _, err := catalog.ReadColumns(ctx, s.conn, t)
	if err != nil {
		return nil, err
	}
	found.needed, _ = s.router.Needed(all) // also those left out of the publication
	found.unfit = s.router.Bind(found.relation)
	return found, nil
}

// rights: decoding asks for no privilege on a table, reading it does.
func (d *doctor) rights(ctx context.Context, t pg.Table) {
	why, purpose := "source.snapshot is initial", "the snapshot"
	switch {
	case d.cfg.Source.Snapshot == config.SnapshotInitial:
	case d.repairs():
		why, purpose = "errors.on_loss: repair compares the rows with Kafka", "a repair"
	case d.cfg.Repairable():
		why, purpose = "after a loss of the slot, repair compares the rows with Kafka", "a repair after a loss"
	default:
		return
	}
	name := "privileges " + t.String()
	switch err := d.mayRead(ctx, t, why); {
	case failure.ClassOf(err) == failure.Config && d.cfg.Source.Snapshot != config.SnapshotInitial && !d.repairs():
		d.warn(name, failure.RemedyOf(err), "%s", err)
	case err != nil:
		d.fail(name, err)
	default:
		d.ok(name, "the role may read the table for %s", purpose)
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
	d.takenAway(ctx, pub)
	d.unseenUpdates(pub)
	d.moved(ctx, pub)
	for _, w := range warnings {
		d.warn(name, failure.RemedyOf(w), "%s", w)
	}
	if len(failures) > 0 {
		d.fail(name, errors.Join(failures...))
		return
	}
	d.ok(name, "%s publishes %s", pub.Name, operations(pub))
}

// leftOut mentions column lists: the header of an unpublished optional column
// would be missing without a word.
func (d *doctor) leftOut(pub catalog.Publication) {
	for _, m := range pub.Tables {
		if m.Columns != nil && slices.Contains(d.cfg.Source.Tables, m.Table) {
			d.warn("publication", "", "of table %s only these columns are published: %s", m.Table, strings.Join(m.Columns, ", "))
		}
	}
}

// unseenUpdates mentions an option in need of updates, where these are not
// published.
func (d *doctor) unseenUpdates(pub catalog.Publication) {
	if policy := d.cfg.Event.OnUpdate; policy != transform.UpdateWarn && !pub.Update && len(d.infos) > 0 {
		d.warn("publication", "publish them where each published table has a replica identity: ALTER PUBLICATION "+pgsql.Name(pub.Name)+
			" SET (publish = '"+strings.Join(append(pub.Operations(), "update"), ", ")+"')",
			"event.on_update: %s has no effect on an UPDATE, as publication %q publishes none", policy, pub.Name)
	}
}

// moved says of partitioned tables whether a moved row is told from a new row.
func (d *doctor) moved(ctx context.Context, pub catalog.Publication) {
	for _, info := range d.infos {
		if !info.Partitioned {
			continue
		}
		name := "partitions " + info.String()
		warning, err := d.movesUnseen(ctx, pub, info)
		switch {
		case err != nil:
			d.fail(name, err)
		case warning != nil:
			d.warn(name, failure.RemedyOf(warning), "%s", warning)
		default:
			d.ok(name, "no row that is there can be taken for a new one by moving")
		}
	}
}

// movesUnseen is catalog.WarnOfMoves for a table of the configuration.
func (s *session) movesUnseen(ctx context.Context, pub catalog.Publication, info catalog.TableInfo) (warning, err error) {
	rel, _, err := catalog.ReadColumns(ctx, s.conn, info.Table)
	if err != nil {
		return nil, err
	}
	return catalog.WarnOfMoves(ctx, s.conn, pub, info, s.router.IDColumn(rel), s.cfg.Source.Tables)
}

func operations(p catalog.Publication) string {
	return cmp.Or(strings.Join(p.Operations(), ", "), "nothing")
}

// takenAway names statements refused to the application because of the
// publication, in tables other than ours.
func (d *doctor) takenAway(ctx context.Context, pub catalog.Publication) {
	tables, err := catalog.WithoutIdentity(ctx, d.conn, pub, d.cfg.Source.Tables)
	switch {
	case err != nil:
		d.fail("publication", err)
	case len(tables) > 0:
		d.warn("publication", "ALTER PUBLICATION "+pgsql.Name(pub.Name)+" SET (publish = 'insert'), if nobody else reads it; or, for each table, "+catalog.IdentityRemedy,
			"publication %q publishes %s, also of tables without replica identity, in which PostgreSQL refuses UPDATEs or DELETEs to the application: %s",
			pub.Name, operations(pub), strings.Join(tables, ", "))
	}
}

// missingPublication is a failure unless run may and can create it.
func (d *doctor) missingPublication(ctx context.Context) {
	const name = "publication"
	if d.slot != nil {
		d.fail(name, d.source().MissingPublication(ctx, d.conn, ""))
		return
	}
	missing := missingPublication(d.cfg, d.infos)
	if !d.cfg.Source.Create {
		d.fail(name, fmt.Errorf("%w, and source.create is false", missing))
		return
	}
	if err := d.mayMakePublication(ctx, d.infos); err != nil {
		d.fail(name, err)
		return
	}
	d.ok(name, "%s; run will create it", missing)
}

// missingPublication is the error of a publication not there yet.
func missingPublication(cfg *config.Config, infos []catalog.TableInfo) error {
	remedy := "run `cdc-outbox setup` as the tables' owner"
	if len(infos) == len(cfg.Source.Tables) {
		remedy += ", or: " + catalog.CreatePublicationSQL(cfg.Source.Publication, infos) + ";"
	}
	return failure.Configf(remedy, "publication %q does not exist", cfg.Source.Publication)
}
