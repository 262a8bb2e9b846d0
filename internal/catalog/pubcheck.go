package catalog

import (
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// CheckPublication returns the faults of a publication for reading the tables.
// Failures would lose or damage events. Warnings are about harm to others, or
// about something that is hidden. needed are the columns that must be
// published, by table. All errors carry a remedy.
func CheckPublication(p Publication, tables []TableInfo, needed map[pg.Table][]string) (failures, warnings []error) {
	names := make([]pg.Table, len(tables))
	for i, t := range tables {
		names[i] = t.Table
	}
	if !p.Insert && len(tables) > 0 {
		failures = append(failures, failure.Configf(
			behindWriters("ALTER PUBLICATION "+pgsql.Name(p.Name)+" SET (publish = '"+strings.Join(append([]string{"insert"}, p.Operations()...), ", ")+"')", names...),
			"publication %q does not publish inserts, so no event would ever arrive", p.Name))
	}
	for _, t := range tables {
		if errs := CheckTable(t, names); len(errs) > 0 {
			failures = append(failures, errs...)
			continue
		}
		failures = append(failures, checkMember(p, t, needed[t.Table])...)
		warnings = append(warnings, warnAbout(p, t)...)
	}
	return failures, append(warnings, warnOfSiblings(tables)...)
}

// warnOfSiblings names partitions of a single table: a row moving between them
// is deleted in one table and inserted into another.
func warnOfSiblings(tables []TableInfo) (warnings []error) {
	of := make(map[pg.Table][]string)
	for _, t := range tables {
		if len(t.Ancestors) == 0 {
			continue
		}
		root := t.Ancestors[len(t.Ancestors)-1]
		of[root] = append(of[root], t.String())
		if names := of[root]; len(names) == 2 {
			warnings = append(warnings, failure.Configf("leave rows where they are; a new pipeline had better read "+root.String()+" itself, with publish_via_partition_root",
				"tables %s are partitions of %s: a row that moves from one to the other is published again", strings.Join(names, " and "), root))
		}
	}
	return warnings
}

// CheckTable returns why rows seen in the table would not reach the stream
// under its name, whatever the publication, if so. tables are all that are
// read. The errors are of class failure.Config.
func CheckTable(t TableInfo, tables []pg.Table) (errs []error) {
	if !t.Publishable {
		return []error{failure.Configf(t.PublishableRemedy(),
			"table %s cannot be published: it is a view, or an unlogged, temporary or foreign table", t.Table)}
	}
	for _, part := range t.Unpublishable {
		errs = append(errs, failure.Configf(
			"ALTER TABLE "+part.Quoted()+" SET LOGGED; or take it out: ALTER TABLE … DETACH PARTITION "+part.Quoted()+";",
			"partition %s of table %s cannot be published: it is an unlogged or foreign table, so events in it would never arrive", part, t.Table))
	}
	for _, child := range t.Children {
		if !slices.Contains(tables, child) {
			errs = append(errs, failure.Configf(
				"add "+child.String()+" to source.tables, or: ALTER TABLE "+child.Quoted()+" NO INHERIT …;",
				"table %s inherits from table %s, but rows in it are not published under that name: they would never arrive", child, t.Table))
		}
	}
	return errs
}

// PublishableRemedy is for a table that is not Publishable.
func (t TableInfo) PublishableRemedy() string {
	if t.Unlogged {
		return "ALTER TABLE " + t.Quoted() + " SET LOGGED;"
	}
	return "name the table that the rows are inserted into in source.tables, in place of a view; it must be an ordinary or partitioned one of this database that is permanent and logged"
}

func checkMember(p Publication, t TableInfo, needed []string) []error {
	alter := "ALTER PUBLICATION " + pgsql.Name(p.Name)
	if err := p.Excepts(t.Table); err != nil {
		return []error{err}
	}
	if !p.Publishes(t.Table) {
		return []error{failure.Configf(behindWriters(alter+" ADD TABLE "+t.Quoted(), t.Table),
			"table %s is not in publication %q", t.Table, p.Name)}
	}

	var errs []error
	if t.Partitioned && !p.ViaRoot {
		errs = append(errs, failure.Configf(behindWriters(alter+" SET (publish_via_partition_root = true)", t.Table),
			"table %s is partitioned, and publication %q publishes its rows under the partitions' names", t.Table, p.Name))
	}
	if root, ok := p.publishedAs(t); ok {
		errs = append(errs, failure.Configf("put "+root.String()+" into source.tables instead",
			"table %s is a partition, and publication %q publishes its rows under the name of %s", t.Table, p.Name, root))
	}
	if m, ok := p.table(t.Table); ok && m.RowFilter != "" && !p.inSchema(t.Table) {
		errs = append(errs, failure.Configf(behindWriters(alter+" SET TABLE "+p.withPlain(t.Table), t.Table),
			"publication %q has a row filter on table %s, so some events would never arrive: WHERE %s", p.Name, t.Table, m.RowFilter))
	}
	if missing := missingColumns(p.ColumnList(t.Table), needed); len(missing) > 0 {
		errs = append(errs, failure.Configf(behindWriters(alter+" SET TABLE "+p.withPlain(t.Table), t.Table),
			"publication %q leaves out columns of table %s that are needed: %s", p.Name, t.Table, strings.Join(missing, ", ")))
	}
	return errs
}

// Excepts is the error of a table left out of all tables, or nil. The remedy
// keeps the other exceptions.
func (p Publication) Excepts(t pg.Table) error {
	if !p.excepts(t) {
		return nil
	}
	return failure.Configf(behindWriters("ALTER PUBLICATION "+pgsql.Name(p.Name)+" SET ALL TABLES"+p.exceptions(t), t),
		"publication %q is of all tables EXCEPT table %s, so no event would ever arrive", p.Name, t)
}

// publishedAs returns the table under whose name the rows of a partition are
// published: the topmost published one of itself and its ancestors (pgoutput.c,
// get_rel_sync_entry).
func (p Publication) publishedAs(t TableInfo) (root pg.Table, ok bool) {
	if !p.ViaRoot {
		return pg.Table{}, false
	}
	for _, above := range t.Ancestors {
		if p.Publishes(above) {
			root, ok = above, true
		}
	}
	return root, ok
}

// warnAbout finds statements of the application refused by PostgreSQL because
// of the publication.
func warnAbout(p Publication, t TableInfo) []error {
	if !p.Publishes(t.Table) || t.ReplicaIdentity || !p.Update && !p.Delete {
		return nil
	}
	return []error{failure.Configf(
		"ALTER PUBLICATION "+pgsql.Name(p.Name)+" SET (publish = 'insert'); or "+IdentityRemedy,
		"table %s, or a partition of it, has no replica identity but publication %q publishes updates or deletes: PostgreSQL refuses them to the application", t.Table, p.Name)}
}

func missingColumns(published, needed []string) []string {
	if published == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(needed), func(c string) bool {
		return slices.Contains(published, c)
	})
}

// withPlain lists the publication's tables for SET TABLE, with the given table
// freed of the filter and column list.
func (p Publication) withPlain(plain pg.Table) string { return p.withColumns(plain, nil) }

// withColumns is withPlain, with a column list; nil for none.
func (p Publication) withColumns(t pg.Table, columns []string) string {
	items := make([]string, len(p.Tables))
	for i, m := range p.Tables {
		if m.Table == t {
			m.Columns, m.RowFilter = columns, ""
		}
		items[i] = m.Quoted()
		if m.Columns != nil {
			cols := make([]string, len(m.Columns))
			for j, c := range m.Columns {
				cols[j] = pgsql.Name(c)
			}
			items[i] += " (" + strings.Join(cols, ", ") + ")"
		}
		if m.RowFilter != "" {
			items[i] += " WHERE (" + m.RowFilter + ")"
		}
	}
	list := strings.Join(items, ", ")
	for _, s := range p.Schemas {
		list += ", TABLES IN SCHEMA " + pgsql.Name(s.Name)
	}
	return list
}
