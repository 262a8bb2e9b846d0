package stream

import (
	"errors"
	"sync/atomic"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// outboxTables tells the rows of outbox tables from others. One goroutine uses
// it, and others hand it their looks at the catalogs.
type outboxTables struct {
	named map[pg.Table]bool
	owned checkpoint.Owned
	note  func(checkpoint.Owned) // tells the next checkpoints of a change

	looks atomic.Pointer[look] // the last one; nil before the first
	seen  *look                // what owned knows of

	// The last decision, for the next row of the same table.
	relation *pg.Relation // nil: nothing
	byName   bool
	byOID    bool // perhaps: see checkpoint.Owned
}

// look is what the catalogs showed of the outbox tables.
type look struct {
	tables []catalog.TableInfo
	at     pg.LSN // a position behind it
}

// begin takes over what the checkpoint knows, unless this process has had a
// session itself. from is where the slot stands.
func (o *outboxTables) begin(found *checkpoint.Checkpoint, scope string, from pg.LSN) {
	if o.owned == nil {
		o.owned = found.OwnedUnder(scope, o.looks.Load().tables)
	}
	o.owned = o.owned.After(from)
	o.relation = nil
	o.learn(0)
	o.note(o.owned)
}

// learn takes up the last look at the catalogs. Everything that was judged
// before commits at the position, or before it.
func (o *outboxTables) learn(judged pg.LSN) {
	last := o.looks.Load()
	if last == o.seen {
		return
	}
	o.seen, o.relation = last, nil
	o.know(o.owned.Seen(last.tables, max(last.at, judged)))
}

func (o *outboxTables) know(owned checkpoint.Owned) {
	if o.owned == nil || !owned.Equal(o.owned) {
		o.owned = owned
		o.note(owned)
	}
}

// has reports whether the row is of an outbox table: one that had the name when
// the row was written, or is known to be an outbox table at that place of the
// log. If a table was renamed for a while, the stream shows the name of that
// time. Up to PostgreSQL 15 the stream also misses when a schema gets its old
// name back (pgoutput.c, init_rel_sync_cache).
func (o *outboxTables) has(row *pg.Row) bool {
	commit := row.Position.CommitLSN
	o.learn(commit)
	if rel := row.Relation; rel != o.relation {
		o.relation = rel
		o.byName = o.named[pg.Table{Schema: rel.Namespace, Name: rel.Name}]
		o.byOID = !o.byName && o.owned.Knows(rel.OID)
	}
	return o.byName || o.byOID && o.owned.Has(row.Relation.OID, commit)
}

// mayHave reports whether a table's rows may be an outbox table's, now or later.
func (o *outboxTables) mayHave(rel *pg.Relation) bool {
	return o.named[pg.Table{Schema: rel.Namespace, Name: rel.Name}] || o.owned.Knows(rel.OID)
}

// errForgotten ends a session whose stream has not kept the definition of a table
// that is an outbox table by now. The next one does.
var errForgotten = errors.New("a table has become an outbox table without a word of it in the stream, as when its schema is renamed; the stream begins anew")

// unread returns an error if a row that came without its values is needed. That may
// be up to PostgreSQL 15, which does not announce a table again when its schema is
// renamed.
func (o *outboxTables) unread(row *pg.Row) error {
	commit := row.Position.CommitLSN
	o.learn(commit)
	if o.owned.Has(row.Relation.OID, commit) {
		return errForgotten
	}
	return nil
}

// partitioned reports whether rows of the row's table can move between partitions.
func (o *outboxTables) partitioned(row *pg.Row) bool { return o.owned.Partitioned(row.Relation.OID) }
