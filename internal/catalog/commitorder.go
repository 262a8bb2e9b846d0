package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// OrderNumbers is how many numbers rows are compared by.
const OrderNumbers = 4

// Order is how rows that were committed long ago are put in order: the log that
// had their order is gone.
type Order struct {
	// Numbers are SQL expressions of int8 that rows are compared by, the first
	// first; NULL comes before all others. Rows with equal numbers are in the order of
	// their commands (cmin) and places.
	Numbers [OrderNumbers]string
	// By names them, for people.
	By string
	// Exact tells that they are in the order of the commits.
	Exact bool
}

const (
	noNumber   = "NULL::int8"
	commitTime = "pg_xact_commit_timestamp(xmin)"
	// micros is the time of an expression in microseconds since 1970. Without a
	// zone the time counts as one of the session's, which is UTC.
	micros = "CASE WHEN isfinite(%[1]s) THEN (extract(epoch FROM %[1]s) * 1000000)::int8 END"
)

// Micros is an SQL expression for the time in a column, in microseconds since
// 1970; NULL for no time and for an infinite one. A time without a zone counts as UTC.
func Micros(column string) string { return fmt.Sprintf(micros, pgsql.Name(column)) }

// ReadOrder returns the order of a table's rows: by the times of their commits,
// where the server has them (track_commit_timestamp), by a primary key that grows,
// by the column with their time ("" for none), or by their transactions. A key counts
// beside a time. With several tables the time is before the key, which counts in
// its own table only.
func ReadOrder(ctx context.Context, conn *pgx.Conn, table pg.Table, timeColumn string, several bool) (Order, error) {
	o := Order{By: "transaction, then command"}
	for i := range o.Numbers {
		o.Numbers[i] = noNumber
	}
	column, typ, err := growingKey(ctx, conn.PgConn(), table)
	if err != nil {
		return o, fmt.Errorf("read primary key of %s: %w", table, err)
	}
	var tracked bool
	if err := conn.QueryRow(ctx, `SELECT current_setting('track_commit_timestamp')::bool`).Scan(&tracked); err != nil {
		return o, fmt.Errorf("read track_commit_timestamp: %w", err)
	}
	if column != "" {
		o.first("primary key "+column, keyNumbers(column, typ)...)
	} else if o.Numbers[0], err = transactionNumber(ctx, conn, timeColumn, tracked); err != nil {
		return o, err
	}
	// The key puts the events of a transaction in order, which have the same time.
	if timeColumn != "" && (several && !tracked || column == "") {
		o.first("column "+timeColumn, Micros(timeColumn))
	}
	if tracked {
		o.first("time of the commit", "(extract(epoch FROM "+commitTime+") * 1000000)::int8")
		o.Exact = true
	}
	return o, nil
}

// transactionNumber is the 64-bit id of the row's transaction; NULL for a row whose
// time belongs to a single transaction: that of a commit, or the column's in
// microseconds. There the command alone orders the rows, as a subtransaction has an
// id of its own, but the commands of its transaction are counted through.
func transactionNumber(ctx context.Context, conn *pgx.Conn, timeColumn string, tracked bool) (string, error) {
	next, err := NextXID(ctx, conn)
	if err != nil {
		return "", fmt.Errorf("read next transaction: %w", err)
	}
	// Rows have the lower 32 bits. Transactions may begin before the rows are read.
	last := int64(next) + 1<<30
	id := fmt.Sprintf("%[1]d - ((%[1]d - xmin::text::int8) & 4294967295)", last)
	single := "false"
	if tracked {
		single = commitTime + " IS NOT NULL"
	}
	if timeColumn != "" {
		single += " OR " + Micros(timeColumn) + " % 1000 <> 0"
	}
	return "CASE WHEN " + single + " THEN " + noNumber + " ELSE " + id + " END", nil
}

// first puts numbers before the others, of which the last go.
func (o *Order) first(by string, numbers ...string) {
	if o.Numbers[0] == noNumber {
		o.By = by
	} else {
		o.By = by + ", then " + o.By
	}
	copy(o.Numbers[len(numbers):], o.Numbers[:])
	copy(o.Numbers[:], numbers)
}

// Prefer orders by the columns, as far as they are numbers or times, before
// anything else.
func (o *Order) Prefer(rel *pg.Relation, columns []string) {
	for _, name := range slices.Backward(columns[:min(len(columns), len(o.Numbers))]) {
		for _, c := range rel.Columns {
			if c.Name != name {
				continue
			}
			switch c.Type {
			case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
				o.first("column "+name, keyNumbers(pgsql.Name(name), "int8")...)
			case pgtype.TimestampOID, pgtype.TimestamptzOID:
				o.first("column "+name, Micros(name))
			case pgtype.UUIDOID:
				o.first("column "+name, keyNumbers(pgsql.Name(name), "uuid")...)
			default:
				continue
			}
			o.Exact = false
		}
	}
}

// keyNumbers are those of a quoted column of an integer or a UUID: of that, the two
// halves, with the first bit turned, as the numbers have a sign.
func keyNumbers(column, typ string) []string {
	if typ != "uuid" {
		return []string{column + "::int8"}
	}
	half := func(begin int) string {
		return fmt.Sprintf("(('x' || substr(replace(%s::text, '-', ''), %d, 16))::bit(64) # x'8000000000000000')::int8", column, begin)
	}
	return []string{half(1), half(17)}
}
