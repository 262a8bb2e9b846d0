package transform

import (
	"crypto/sha256"
	"slices"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// A Move says whether an inserted row was there before.
type Move uint8

// The answers of Moves.Inserted.
const (
	NotMoved   Move = iota // a new row
	Moved                  // deleted before in the transaction: the row has another place now
	MaybeMoved             // the transaction deleted more rows than Moves remembers
)

// Moves tells the rows a transaction moves from those it inserts. PostgreSQL
// moves a row from one partition to another by a deletion and an insertion, and
// so do people. Moves remembers the ids of the deleted rows until the
// transaction ends, up to a limit; the last one always. The answers depend on
// the rows of the transaction only, so a replay gives the same.
type Moves struct {
	// Limit is the most ids remembered.
	Limit int

	any     bool // a row was deleted
	last    movedRow
	deleted map[movedRow]uint32 // the others, and how many of them: ids may repeat
	beyond  bool                // there was no room for another
}

// MovesWithin remembers about as many ids as fit the memory.
func MovesWithin(bytes int64) Moves { return Moves{Limit: int(bytes / movedMemory)} }

// movedMemory is about the most memory of an id.
const movedMemory = 64

// movedRow is a row's table and a digest of the event id, which no two ids
// share.
type movedRow struct {
	table uint32
	id    [16]byte
}

func (r *Router) movedRow(row *pg.Row) (m movedRow, ok bool) {
	id, ok := r.id(row)
	if !ok {
		return m, false
	}
	digest := sha256.Sum256(id)
	return movedRow{row.Relation.OID, [16]byte(digest[:])}, true
}

// id returns the event id of a row, or of a deleted row's key.
func (r *Router) id(row *pg.Row) (id []byte, ok bool) {
	i := r.idIndex(row.Relation)
	if i < 0 || i >= len(row.Values) || row.Values[i].Kind != pg.Text {
		return nil, false
	}
	return row.Values[i].Data, true
}

// IDColumn returns the name of the column with the event id; "" where the table
// has none. IDColumn changes nothing and may be called at any time, from any
// goroutine.
func (r *Router) IDColumn(rel *pg.Relation) string {
	if i := r.idIndex(rel); i >= 0 {
		return rel.Columns[i].Name
	}
	return ""
}

func (r *Router) idIndex(rel *pg.Relation) int {
	names := idNames
	if r.event.ID != "" {
		names = []string{r.event.ID}
	}
	return slices.IndexFunc(rel.Columns, func(c pg.Column) bool { return slices.Contains(names, c.Name) })
}

// Deleted notes a row the transaction deletes, by its old key or as a whole. A
// row whose key has no event id is not noted.
func (m *Moves) Deleted(r *Router, row *pg.Row) {
	gone, ok := r.movedRow(row)
	if !ok {
		return
	}
	if m.any {
		m.keep(m.last)
	}
	m.last, m.any = gone, true
}

// keep remembers a row that is no longer the last.
func (m *Moves) keep(gone movedRow) {
	if gone == (movedRow{}) {
		return
	}
	if m.deleted == nil {
		m.deleted = make(map[movedRow]uint32)
	}
	if m.deleted[gone] == 0 && len(m.deleted) >= m.Limit {
		m.beyond = true
		return
	}
	m.deleted[gone]++
}

// Inserted tells whether the transaction inserts a row deleted before.
func (m *Moves) Inserted(r *Router, row *pg.Row) Move {
	if !m.any {
		return NotMoved
	}
	return m.recall(r, row)
}

func (m *Moves) recall(r *Router, row *pg.Row) Move {
	came, ok := r.movedRow(row)
	switch {
	case !ok:
		return NotMoved
	case came == m.last:
		m.last = movedRow{}
		return Moved
	}
	switch n := m.deleted[came]; {
	case n > 1:
		m.deleted[came] = n - 1
	case n == 1:
		delete(m.deleted, came)
	case m.beyond:
		return MaybeMoved
	default:
		return NotMoved
	}
	return Moved
}

// End forgets the transaction.
func (m *Moves) End() {
	if m.any {
		*m = Moves{Limit: m.Limit}
	}
}
