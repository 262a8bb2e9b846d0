package audit

import (
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// mostDays bounds the number of days; rows of further days count together.
const mostDays = 10_000

// Day has the rows of a table and a day, in UTC.
type Day struct {
	Table pg.Table
	// Day is the first moment; zero: rows without a time, or of further days.
	Day time.Time
	// Rows have a content, Compared rows a record, and Equal rows an equal record.
	Rows, Compared, Equal int64
	// RowSum and RecordSum are the sums of the contents of the rows compared, and of
	// their records, in any order.
	RowSum, RecordSum Sum
}

// add adds a row and its record.
func (d *Day) add(row *rowContent, rec *recordContent) {
	d.Compared++
	d.RowSum.add(Key(row.says))
	d.RecordSum.add(Key(rec.says))
}

// days are the days by their order of appearance.
type days struct {
	list  []Day
	index map[day]uint32
}

type day struct {
	table *Table
	unix  int64 // of the first second, or NoTime
}

// of returns the index of the day of a row.
func (d *days) of(table *Table, at int64) uint32 {
	key := day{table, NoTime}
	if at != NoTime {
		key.unix = time.UnixMicro(at).Truncate(24 * time.Hour).Unix()
	}
	n, ok := d.index[key]
	if !ok && len(d.list) >= mostDays {
		key.unix = NoTime
		n, ok = d.index[key]
	}
	if !ok {
		n = uint32(len(d.list))
		d.index[key] = n
		found := Day{Table: table.Name}
		if key.unix != NoTime {
			found.Day = time.Unix(key.unix, 0).UTC()
		}
		d.list = append(d.list, found)
	}
	return n
}
