package stream

import (
	"errors"
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// outboxTables tells the rows of outbox tables from others. A single goroutine
// uses it; saw and lastSeen are for any.
type outboxTables struct {
	named map[pg.Table]bool
	owned checkpoint.Owned
	note  func(checkpoint.Owned) // tells the next checkpoints of a change
	lose  func(error) error      // tells the next checkpoints of a loss

	looks atomic.Pointer[look] // the last; nil before the first
	seen  *look                // the last look taken up by owned
	from  pg.LSN               // a position before seen; owned was true until there

	// Rows of other tables, committed behind from, by OID: the last commit.
	passed map[uint32]pg.LSN
	last   struct { // of passed
		oid    uint32
		commit pg.LSN
	}
	lost error // passed rows may be events

	// The last decision, for the next row of the same table.
	relation *pg.Relation // nil: nothing
	byName   bool
	byOID    bool // perhaps: see checkpoint.Owned
}

// look is the catalogs' content about outbox tables.
type look struct {
	tables      []catalog.TableInfo
	from, at    pg.LSN // positions before the look, and behind
	schemasTold bool
}

func newOutboxTables(named []pg.Table, k *checkpointer) *outboxTables {
	o := &outboxTables{named: make(map[pg.Table]bool, len(named)), note: k.own, lose: k.remember}
	for _, t := range named {
		o.named[t] = true
	}
	return o
}

// saw takes a look, on any goroutine.
func (o *outboxTables) saw(l *look) { o.looks.Store(l) }

// lastSeen are the tables of the last look.
func (o *outboxTables) lastSeen() []catalog.TableInfo {
	if last := o.looks.Load(); last != nil {
		return last.tables
	}
	return nil
}

// begin takes over the checkpoint's knowledge in the first session of the process.
// slot is the slot's position.
func (o *outboxTables) begin(found *checkpoint.Checkpoint, scope string, slot pg.LSN) error {
	if o.owned == nil && found != nil {
		o.owned = found.OwnedUnder(scope, o.looks.Load().tables)
		o.from = found.LSN
	}
	o.owned = o.owned.After(slot)
	o.relation = nil
	err := o.learn(0)
	o.note(o.owned)
	return err
}

// learn takes up the last look at the catalogs. Rows judged before commit at the
// position, or earlier. An error is a loss, and stays.
func (o *outboxTables) learn(judged pg.LSN) error {
	last := o.looks.Load()
	if last == o.seen || o.lost != nil {
		return o.lost
	}
	untold := o.owned.Untold(last.tables, last.schemasTold)
	for _, oid := range untold {
		if _, passed := o.passed[oid]; passed {
			return o.lostRows(oid)
		}
	}
	o.know(o.owned.Seen(last.tables, max(last.at, judged)).Doubting(untold, o.from))
	o.seen, o.relation, o.from = last, nil, last.from
	maps.DeleteFunc(o.passed, func(_ uint32, commit pg.LSN) bool { return commit <= o.from })
	return nil
}

// lostRows is the loss of a table's rows: they came under another name, and may have
// been events.
func (o *outboxTables) lostRows(oid uint32) error {
	name := fmt.Sprintf("of OID %d", oid)
	for _, t := range o.owned {
		if t.OID == oid && t.Name != "" {
			name = t.Name
		}
	}
	for _, t := range o.looks.Load().tables {
		if t.OID == oid {
			name = t.String()
		}
	}
	o.lost = o.lose(failure.Lossf("look for rows of the table that are not in its topics; then "+catalog.AcceptGap+". For the next time: docs/tables.md",
		"table %s is another one than before, and the stream does not tell since when: its schema was renamed (up to PostgreSQL 15), or it is partitioned and was renamed. "+
			"Rows of it that were committed behind %s came under its former name, and may be events", name, o.from))
	return o.lost
}

// judge reports whether the inserted row is of an outbox table, and notes any other row.
func (o *outboxTables) judge(msg *wal.Message) (ours bool, err error) {
	row := &msg.Row
	if msg.Unread {
		err = o.unread(row)
	} else {
		ours = o.has(row)
	}
	if ours || err != nil {
		return ours, err
	}
	return false, o.pass(row)
}

// pass notes a row, as far as known no event.
func (o *outboxTables) pass(row *pg.Row) error {
	oid, commit := row.Relation.OID, row.Position.CommitLSN
	if oid == o.last.oid && commit == o.last.commit {
		return nil
	}
	o.last.oid, o.last.commit = oid, commit
	if o.owned.Doubts(oid, commit) {
		return o.lostRows(oid)
	}
	if o.passed == nil {
		o.passed = make(map[uint32]pg.LSN)
	}
	o.passed[oid] = commit
	return nil
}

func (o *outboxTables) know(owned checkpoint.Owned) {
	if o.owned == nil || !owned.Equal(o.owned) {
		o.owned = owned
		o.note(owned)
	}
}

// missed are the columns of a table detected before the commit, and gone.
func (o *outboxTables) missed(oid uint32, commit pg.LSN) []string { return o.owned.Missed(oid, commit) }

// bound notes the columns detected from the commit on.
func (o *outboxTables) bound(oid uint32, detected []string, commit pg.LSN) {
	o.know(o.owned.Bound(oid, detected, commit))
}

// has reports whether the row is of an outbox table: by the table's name when the
// row was written, or by the owned tables at the row's place in the log. If a table
// was renamed for a while, the stream shows the name of that time. Up to PostgreSQL
// 15 the stream also misses when a schema gets back an old name (pgoutput.c,
// init_rel_sync_cache).
func (o *outboxTables) has(row *pg.Row) bool {
	commit := row.Position.CommitLSN
	_ = o.learn(commit) // the end of the transaction returns the error
	if rel := row.Relation; rel != o.relation {
		o.relation = rel
		o.byName = o.named[pg.Table{Schema: rel.Namespace, Name: rel.Name}]
		o.byOID = !o.byName && o.owned.Knows(rel.OID)
	}
	return o.byName || o.byOID && o.owned.Has(row.Relation.OID, commit)
}

// mayHave reports whether a table may be an outbox table, now or later.
func (o *outboxTables) mayHave(rel *pg.Relation) bool {
	return o.named[pg.Table{Schema: rel.Namespace, Name: rel.Name}] || o.owned.Knows(rel.OID)
}

// errForgotten ends a session if the stream has not kept the definition of a table
// that has become an outbox table. The next session's stream does.
var errForgotten = errors.New("a table has become an outbox table without a word of it in the stream, as when its schema is renamed; the stream begins anew")

// unread returns an error if a row without its values is needed. Up to PostgreSQL
// 15, a table is not announced again when its schema is renamed.
func (o *outboxTables) unread(row *pg.Row) error {
	commit := row.Position.CommitLSN
	if err := o.learn(commit); err != nil {
		return err
	}
	if o.owned.Has(row.Relation.OID, commit) {
		return errForgotten
	}
	return nil
}

// partitioned reports whether rows of the table can move between partitions.
func (o *outboxTables) partitioned(row *pg.Row) bool { return o.owned.Partitioned(row.Relation.OID) }
