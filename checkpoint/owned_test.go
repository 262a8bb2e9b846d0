package checkpoint

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

func TestOwned(t *testing.T) {
	const old, staged = 1, 2
	first := Owned(nil).Seen(tables(old), 100)
	swapped := first.Seen(tables(staged), 200)
	back := swapped.Seen(tables(old), 300)
	for name, c := range map[string]struct {
		owned  Owned
		oid    uint32
		commit pg.LSN
		want   bool
	}{
		"the first look tells of the whole log":     {first, old, 1, true},
		"a stranger":                                {first, staged, 150, false},
		"before it had the name":                    {swapped, staged, 200, false},
		"since it has the name":                     {swapped, staged, 201, true},
		"while it had the name":                     {swapped, old, 200, true},
		"since it has not the name":                 {swapped, old, 201, false},
		"in between":                                {back, old, 250, false},
		"again":                                     {back, old, 301, true},
		"and then not the other":                    {back, staged, 301, false},
		"but in a replay":                           {back, staged, 250, true},
		"what a slot is past of is forgotten":       {swapped.After(201), old, 200, false},
		"and nothing else":                          {swapped.After(200), old, 200, true}, // the commit is right behind
		"of another scope only those that lasted":   {(&Checkpoint{Owned: back, Scope: "x"}).OwnedUnder("y", tables(staged)), old, 301, false},
		"of the same scope all":                     {(&Checkpoint{Owned: back, Scope: "x"}).OwnedUnder("x", tables(staged)), old, 301, true},
		"no checkpoint":                             {(*Checkpoint)(nil).OwnedUnder("x", nil).Seen(tables(old), 9), old, 1, true},
		"a checkpoint of a version that noted none": {(&Checkpoint{}).OwnedUnder("", nil).After(9).Seen(tables(old), 9), old, 1, true},
	} {
		if got := c.owned.Has(c.oid, c.commit); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if again := swapped.Seen(tables(staged), 999); !again.Equal(swapped) {
		t.Errorf("a look that shows nothing new changed %v to %v", swapped, again)
	}
}

func TestOwnedColumns(t *testing.T) {
	const oid = 1
	owned := Owned(nil).Seen(tables(oid), 0)
	bound := owned.Bound(oid, []string{"type"}, 10)
	for name, c := range map[string]struct {
		owned  Owned
		oid    uint32
		commit pg.LSN
		want   int
	}{
		"nothing was bound":              {owned, oid, 20, 0},
		"behind it":                      {bound, oid, 11, 1},
		"in its transaction, and before": {bound, oid, 10, 0},
		"of another table":               {bound, oid + 1, 11, 0},
		"again, which changes nothing":   {bound.Bound(oid, []string{"type"}, 50), oid, 11, 1},
		"and another":                    {bound.Bound(oid, []string{"headers"}, 50), oid, 51, 2},
	} {
		if got := c.owned.Missed(c.oid, c.commit); len(got) != c.want {
			t.Errorf("%s: %v, want %d", name, got, c.want)
		}
	}
	if other := owned.Bound(oid+1, []string{"type"}, 10); !other.Equal(owned) {
		t.Error("a column of a table that is none was noted")
	}
}

// tables are the OIDs'.
func tables(oids ...uint32) (list []catalog.TableInfo) {
	for _, oid := range oids {
		list = append(list, catalog.TableInfo{OID: oid})
	}
	return list
}
