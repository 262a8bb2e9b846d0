package wal

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// wide is a table nobody wants to know of.
func wide(oid uint32) *pglogrepl.RelationMessage {
	columns := make([]pg.Column, 10)
	for i := range columns {
		columns[i] = pg.Column{Name: fmt.Sprintf("column_%d_of_%d", i, oid), Type: 25}
	}
	return relation(oid, "public", fmt.Sprintf("table_%d", oid), columns...)
}

// keepOutbox keeps the outbox alone.
func keepOutbox() *decoder {
	d := newDecoder()
	d.keep = func(rel *pg.Relation) bool { return rel.Name == "outbox" }
	return d
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Failure mode 101. The definitions of tables coming and go are not kept.
func TestDecodeKeepsNoDefinitionOfOtherTables(t *testing.T) {
	const tables, first = 20_000, 20_000
	d := keepOutbox()
	decodeAll(t, d, begin(0x100, 7), outboxRelation())
	before := heap()
	for n := range uint32(tables) {
		must.Get(d.decode(encode(wide(first + n))))(t)
		msg := must.Get(d.decode(encode(insert(first+n, row("1", "2", "3", "4", "5", "6", "7", "8", "9", "10")))))(t)
		if !msg.Unread || msg.Row.Relation.OID != first+n || msg.Row.Position.Seq != n {
			t.Fatalf("a row of table %d: %+v", n, msg)
		}
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("%d tables take %d bytes", tables, grown)
	}
	got := decodeAll(t, d, insert(16400, row("a", "x")), update(first, 'O', row("a"), row("b")), deletion(first+1, 'K', row("a")), truncation(first, 16400), insert(16400, row("b", "y")))
	for i, unread := range []bool{false, true, true, true, false} {
		if got[i].Unread != unread || len(got[i].Row.Values) != map[bool]int{false: 2}[unread] || got[i].Row.Position.Seq != uint32(tables+i) {
			t.Errorf("change %d: %+v", i, got[i])
		}
	}
	if _, err := d.decode(encode(insert(first+tables, row("a")))); err == nil {
		t.Error("a row of a table that was not announced was taken")
	}
	runtime.KeepAlive(d)
}

// A table renamed is judged anew, one way and the other.
func TestDecodeJudgesARenamedTableAnew(t *testing.T) {
	d := keepOutbox()
	named := func(name string) *pglogrepl.RelationMessage {
		return relation(16400, "public", name, pg.Column{Name: "id", Type: 25})
	}
	got := decodeAll(t, d, begin(0x100, 7),
		named("outbox"), insert(16400, row("a")),
		named("archive"), insert(16400, row("b")),
		named("outbox"), insert(16400, row("c")))
	for i, unread := range []bool{false, true, false} {
		if got[i].Unread != unread {
			t.Errorf("row %d: %+v", i, got[i])
		}
	}
}
