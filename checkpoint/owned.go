package checkpoint

import (
	"maps"
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Owned tells by OID which tables are outbox tables, each over a part of the
// log. Only the OID makes an event of a row written while the table had another
// name. OIDs of now would not do: a table taking the outbox's name has rows
// from before, and a replay has to judge as the first pass did. The zero Owned
// knows nothing. Not to be changed.
type Owned []OwnedTable

// OwnedTable is an outbox table. The rows count if their transaction commits
// behind Since and, unless Until is 0, not behind Until.
type OwnedTable struct {
	OID          uint32
	Name         string // as in source.tables
	Schema       uint32 // OID
	Since, Until pg.LSN
	// Unsure is the position, before Since, behind which a row under another name
	// may be an event: see Untold. 0: none may.
	Unsure pg.LSN
	// Partitioned tells that rows can move from partition to partition. It is a
	// property of the OID.
	Partitioned bool
	// Columns are the table's columns in use though no option names them, each with
	// the commit behind which the column is missed.
	Columns map[string]pg.LSN
}

// OwnedUnder returns the tables of a checkpoint, perhaps nil, for the outbox tables of the
// scope. If these are others than before, only present outbox tables count.
func (c *Checkpoint) OwnedUnder(scope string, now []catalog.TableInfo) Owned {
	switch {
	case c == nil:
		return nil
	case c.Scope == scope:
		return c.Owned
	}
	oids := catalog.OIDs(now)
	return c.Owned.keep(func(t OwnedTable) bool { return slices.Contains(oids, t.OID) })
}

// Shares reports whether the checkpoint is of any of the tables, or has a
// source in common with the scope.
func (c *Checkpoint) Shares(tables []uint32, scope string) bool {
	if slices.ContainsFunc(c.Owned, func(t OwnedTable) bool { return t.Until == 0 && slices.Contains(tables, t.OID) }) {
		return true
	}
	named := slices.Collect(pg.SplitNames(scope))
	for name := range pg.SplitNames(c.Scope) {
		if (c.Owned == nil || strings.HasPrefix(name, scopeMessages)) && slices.Contains(named, name) {
			return true
		}
	}
	return false
}

// Has reports whether a row of a transaction committing at the position is an
// outbox table's, whatever the table was called.
func (o Owned) Has(oid uint32, commit pg.LSN) bool {
	return slices.ContainsFunc(o, func(t OwnedTable) bool {
		return t.OID == oid && commit > t.Since && (t.Until == 0 || commit <= t.Until)
	})
}

// Knows reports whether Has holds at any position.
func (o Owned) Knows(oid uint32) bool {
	return slices.ContainsFunc(o, func(t OwnedTable) bool { return t.OID == oid })
}

// Seen returns the tables after a look at the catalogs. at is a position behind
// the look and not before anything judged. The first look tells of the whole
// log.
func (o Owned) Seen(tables []catalog.TableInfo, at pg.LSN) Owned {
	if o == nil {
		at = 0
	}
	oids := catalog.OIDs(tables)
	seen := make(Owned, 0, len(o)+len(oids))
	for _, t := range o {
		if t.Until == 0 && !slices.Contains(oids, t.OID) {
			t.Until = at
		}
		seen = append(seen, t)
	}
	for _, t := range tables {
		i := seen.now(t.OID)
		if i < 0 {
			i, seen = len(seen), append(seen, OwnedTable{OID: t.OID, Since: at})
		}
		seen[i].Name, seen[i].Schema, seen[i].Partitioned = t.String(), t.SchemaOID, t.Partitioned
	}
	return seen
}

// Untold returns the tables of a look that took an outbox's name by an untold rename: of a
// partitioned table, as streams announce only partitions, and, unless schemasTold, of the
// schema, once a stream has announced the table. Rows may have come under the former name
// since.
func (o Owned) Untold(tables []catalog.TableInfo, schemasTold bool) (oids []uint32) {
	for _, t := range tables {
		if o.now(t.OID) >= 0 {
			continue
		}
		untold := func(before OwnedTable) bool {
			return before.Until == 0 && before.Name == t.String() &&
				(t.Partitioned || !schemasTold && before.Schema != t.SchemaOID)
		}
		if slices.ContainsFunc(o, untold) {
			oids = append(oids, t.OID)
		}
	}
	return oids
}

// Doubting returns o with the tables' rows under another name in doubt, from
// the position on.
func (o Owned) Doubting(oids []uint32, from pg.LSN) Owned {
	o = slices.Clone(o)
	for _, oid := range oids {
		o[o.now(oid)].Unsure = from
	}
	return o
}

// Settled returns o with no row in doubt: somebody has decided.
func (o Owned) Settled() Owned {
	o = slices.Clone(o)
	for i := range o {
		o[i].Unsure = 0
	}
	return o
}

// Doubts reports whether a row of a transaction committing at the position,
// under another name than an outbox has, may be an event all the same.
func (o Owned) Doubts(oid uint32, commit pg.LSN) bool {
	return slices.ContainsFunc(o, func(t OwnedTable) bool {
		return t.OID == oid && t.Unsure != 0 && commit > t.Unsure && commit <= t.Since
	})
}

// Partitioned reports whether the table is known to have partitions.
func (o Owned) Partitioned(oid uint32) bool {
	return slices.ContainsFunc(o, func(t OwnedTable) bool { return t.OID == oid && t.Partitioned })
}

// After returns the tables that count for a log read from the position on.
func (o Owned) After(from pg.LSN) Owned {
	return o.keep(func(t OwnedTable) bool { return t.Until == 0 || t.Until >= from })
}

func (o Owned) keep(which func(OwnedTable) bool) Owned {
	if o == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(o), func(t OwnedTable) bool { return !which(t) })
}

// Bound returns the tables after a row with these columns, in a transaction
// committing at the position.
func (o Owned) Bound(oid uint32, columns []string, at pg.LSN) Owned {
	i := o.now(oid)
	if i < 0 {
		return o
	}
	bound := maps.Clone(o[i].Columns)
	for _, name := range columns {
		if _, known := bound[name]; known {
			continue
		}
		if bound == nil {
			bound = make(map[string]pg.LSN)
		}
		bound[name] = at
	}
	o = slices.Clone(o)
	o[i].Columns = bound
	return o
}

// Missed returns the columns that a row of a transaction committing at the
// position must have.
func (o Owned) Missed(oid uint32, commit pg.LSN) (columns []string) {
	i := o.now(oid)
	if i < 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(o[i].Columns)) {
		if commit > o[i].Columns[name] {
			columns = append(columns, name)
		}
	}
	return columns
}

// now is the index of an outbox table at the last look, or -1.
func (o Owned) now(oid uint32) int {
	return slices.IndexFunc(o, func(t OwnedTable) bool { return t.OID == oid && t.Until == 0 })
}

// SameTables reports whether both have the same tables, in the same way.
// Columns are only of use to a position behind the row that had them, which is
// saved with them.
func (o Owned) SameTables(other Owned) bool {
	return slices.EqualFunc(o, other, func(a, b OwnedTable) bool {
		return a.is(b)
	})
}

// Equal reports whether both know the same.
func (o Owned) Equal(other Owned) bool {
	return slices.EqualFunc(o, other, func(a, b OwnedTable) bool {
		return a.is(b) && maps.Equal(a.Columns, b.Columns)
	})
}

// is reports whether both say the same of a table, but for its columns.
func (t OwnedTable) is(o OwnedTable) bool {
	return t.OID == o.OID && t.Name == o.Name && t.Schema == o.Schema && t.Since == o.Since && t.Until == o.Until &&
		t.Unsure == o.Unsure && t.Partitioned == o.Partitioned
}
