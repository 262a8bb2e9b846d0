package wal

import (
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// CheckPublication returns what is wrong with a publication for reading the
// tables: failures would lose or mangle events, warnings harm somebody else or
// hide something. needed are the columns that must be published, by table. All
// errors carry a remedy.
func CheckPublication(p Publication, tables []TableInfo, needed map[Table][]string) (failures, warnings []error) {
	if !p.Insert && len(tables) > 0 {
		failures = append(failures, failure.Configf(
			"ALTER PUBLICATION "+QuoteIdentifier(p.Name)+" SET (publish = 'insert, update');",
			"publication %q does not publish inserts, so no event would ever arrive", p.Name))
	}
	for _, t := range tables {
		failures = append(failures, checkMember(p, t, needed[t.Table])...)
		warnings = append(warnings, warnAbout(p, t)...)
	}
	return failures, warnings
}

func checkMember(p Publication, t TableInfo, needed []string) []error {
	alter := "ALTER PUBLICATION " + QuoteIdentifier(p.Name)
	if !p.Publishes(t.Table) {
		return []error{failure.Configf(alter+" ADD TABLE "+t.Quoted()+";",
			"table %s is not in publication %q", t.Table, p.Name)}
	}

	var errs []error
	if t.Partitioned && !p.ViaRoot {
		errs = append(errs, failure.Configf(alter+" SET (publish_via_partition_root = true);",
			"table %s is partitioned, and publication %q publishes its rows under the partitions' names", t.Table, p.Name))
	}
	if t.PartitionOf != "" && p.ViaRoot && !p.AllTables {
		errs = append(errs, failure.Configf("put "+t.PartitionOf+" into source.tables instead",
			"table %s is a partition, and publication %q may publish its rows under the parent's name", t.Table, p.Name))
	}

	m, ok := p.table(t.Table)
	if !ok || p.membership(t.Table) == "all" {
		return errs
	}
	if m.RowFilter != "" {
		errs = append(errs, failure.Configf(alter+" SET TABLE "+p.withPlain(t.Table)+";",
			"publication %q has a row filter on table %s, so some events would never arrive: WHERE %s", p.Name, t.Table, m.RowFilter))
	}
	if missing := missingColumns(m.Columns, needed); len(missing) > 0 {
		errs = append(errs, failure.Configf(alter+" SET TABLE "+p.withPlain(t.Table)+";",
			"publication %q leaves out columns of table %s that are needed: %s", p.Name, t.Table, strings.Join(missing, ", ")))
	}
	return errs
}

// warnAbout finds what PostgreSQL does to the application on account of the
// publication.
func warnAbout(p Publication, t TableInfo) []error {
	if !p.Publishes(t.Table) || t.ReplicaIdentity || !p.Update && !p.Delete {
		return nil
	}
	return []error{failure.Configf(
		"ALTER TABLE "+t.Quoted()+" ADD PRIMARY KEY (…); or ALTER PUBLICATION "+QuoteIdentifier(p.Name)+" SET (publish = 'insert');",
		"table %s has no replica identity but publication %q publishes updates or deletes: PostgreSQL refuses them to the application", t.Table, p.Name)}
}

func missingColumns(published, needed []string) []string {
	if published == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(needed), func(c string) bool {
		return slices.Contains(published, c)
	})
}

// withPlain lists the publication's tables as SET TABLE wants them, with the
// one given freed of its filter and column list.
func (p Publication) withPlain(plain Table) string {
	items := make([]string, len(p.Tables))
	for i, m := range p.Tables {
		items[i] = m.Quoted()
		if m.Table == plain {
			continue
		}
		if m.Columns != nil {
			cols := make([]string, len(m.Columns))
			for j, c := range m.Columns {
				cols[j] = QuoteIdentifier(c)
			}
			items[i] += " (" + strings.Join(cols, ", ") + ")"
		}
		if m.RowFilter != "" {
			items[i] += " WHERE (" + m.RowFilter + ")"
		}
	}
	list := strings.Join(items, ", ")
	for _, s := range p.Schemas {
		list += ", TABLES IN SCHEMA " + QuoteIdentifier(s.Name)
	}
	return list
}
