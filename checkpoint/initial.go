package checkpoint

import (
	"slices"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// Initial is how far the snapshot of a first start is published.
type Initial struct {
	// Rows is how many rows are published, and the Seq of the next.
	Rows uint32 `json:"rows,omitempty"`
	// Tables are read in their order. At is the index of the table in progress.
	Tables []InitialTable `json:"tables,omitempty"`
	At     int            `json:"at,omitempty"`
}

// InitialTable is a table of the snapshot.
type InitialTable struct {
	OID uint32 `json:"oid"`
	// Sight is what the slot's snapshot sees, for sight.Parse: rows of writers seen are
	// read from the table, the others come by the stream. "": an interruption begins the
	// table anew, with all present rows.
	Sight string `json:"sight,omitempty"`
	// Counted is how many rows the snapshot has, and Published how many of them are
	// published. None is published twice, so equal numbers prove that none is missing.
	Counted   int64 `json:"counted,omitempty"`
	Published int64 `json:"published,omitempty"`
	catalog.TablePlace
}

// Clone returns a copy. Neither shares memory that Reach changes.
func (i *Initial) Clone() *Initial {
	c := *i
	c.Tables = slices.Clone(i.Tables)
	return &c
}

// Reach notes that the row of the table with the index, at the place, is published, and
// all before. rows is how many are.
func (i *Initial) Reach(rows uint32, table int, at catalog.RowPlace) {
	i.Rows, i.At = rows, table
	i.Tables[table].Reach(at)
}

// Reach notes another row as published.
func (t *InitialTable) Reach(at catalog.RowPlace) {
	t.Published++
	t.TablePlace.Reach(at)
}

// Progress is how many of the snapshot's rows are published.
func (i *Initial) Progress() (published, counted int64) {
	for n := range i.Tables {
		published, counted = published+i.Tables[n].Published, counted+i.Tables[n].Counted
	}
	return published, counted
}

// Published is how many rows are published, of all attempts; 0 without a snapshot.
func (i *Initial) Published() uint32 {
	if i == nil {
		return 0
	}
	return i.Rows
}

// beyond reports whether i is further than o. Without a snapshot there is no order.
func (i *Initial) beyond(o *Initial) bool { return i != nil && o != nil && i.Rows > o.Rows }
