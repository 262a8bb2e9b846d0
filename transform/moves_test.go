package transform

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// keyed are two tables; the id is not their first column.
var keyed = []*pg.Relation{
	{OID: 1, Namespace: "public", Name: "a", Columns: []pg.Column{{Name: "created_at"}, {Name: "id"}}},
	{OID: 2, Namespace: "public", Name: "b", Columns: []pg.Column{{Name: "created_at"}, {Name: "id"}}},
}

func keyedRow(table, id int) *pg.Row {
	return &pg.Row{Relation: keyed[table], Values: []pg.Value{{Kind: pg.Text, Data: []byte("now")}, {Kind: pg.Text, Data: strconv.AppendInt(nil, int64(id), 10)}}}
}

// Moves is compared with a model remembering everything. Within the limit Moves is
// exact; beyond the limit no new row is taken for moved, and no row that may have
// been moved for new.
func TestMovesAgainstAModel(t *testing.T) {
	router := must.Get(New(DefaultEvent(), DefaultRoute()))(t)
	random := rand.New(rand.NewPCG(1, 2))
	seen := map[Move]int{}
	for range 20_000 {
		moves := Moves{Limit: random.IntN(6)}
		deleted, most := map[[2]int]int{}, 0
		for range random.IntN(30) {
			row := [2]int{random.IntN(2), random.IntN(6)}
			if random.IntN(2) == 0 {
				moves.Deleted(router, keyedRow(row[0], row[1]))
				deleted[row]++
				most = max(most, len(deleted))
				continue
			}
			got, was := moves.Inserted(router, keyedRow(row[0], row[1])), deleted[row] > 0
			seen[got]++
			if got == Moved && !was || got == NotMoved && was || got == MaybeMoved && most <= moves.Limit {
				t.Fatalf("limit %d: row %v is %d, and in %v", moves.Limit, row, got, deleted)
			}
			if deleted[row]--; deleted[row] <= 0 {
				delete(deleted, row)
			}
		}
		if moves.End(); moves.Inserted(router, keyedRow(0, 0)) != NotMoved {
			t.Fatal("the next transaction has a move")
		}
	}
	if len(seen) != 3 {
		t.Errorf("answers: %v", seen)
	}
}

// A key without the event id tells nothing, nor does a row of another table.
func TestMovesNeedTheEventID(t *testing.T) {
	router := must.Get(New(DefaultEvent(), DefaultRoute()))(t)
	moves := Moves{Limit: 10}
	key := keyedRow(0, 1)
	key.Values[1] = pg.Value{Kind: pg.Null}
	moves.Deleted(router, key)
	moves.Deleted(router, keyedRow(1, 1))
	if got := moves.Inserted(router, keyedRow(0, 1)); got != NotMoved {
		t.Errorf("got %d", got)
	}
	event := DefaultEvent()
	event.ID = "created_at"
	renamed := must.Get(New(event, DefaultRoute()))(t)
	moves.Deleted(renamed, keyedRow(0, 1))
	if got := moves.Inserted(renamed, keyedRow(0, 2)); got != Moved || renamed.IDColumn(keyed[0]) != "created_at" {
		t.Errorf("with event.id: got %d", got)
	}
}

// Rows only inserted cost nothing.
func TestMovesOfInsertsDoNotAllocate(t *testing.T) {
	router := must.Get(New(DefaultEvent(), DefaultRoute()))(t)
	var moves Moves
	row := keyedRow(0, 1)
	if n := testing.AllocsPerRun(100, func() { moves.Inserted(router, row); moves.End() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
