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

// Order is how rows that were committed long ago are put in order: the log that
// had their order is gone.
type Order struct {
	// Numbers are SQL expressions of int8 that rows are compared by, the first
	// first; NULL comes before all others.
	Numbers [2]string
	// By names them, for people.
	By string
	// Exact tells that they are in the order of the commits.
	Exact bool
}

const (
	noNumber = "NULL::int8"
	// micros is the time of an expression in microseconds since 1970. Without a
	// zone the time counts as one of the session's, which is UTC.
	micros = "CASE WHEN isfinite(%[1]s) THEN (extract(epoch FROM %[1]s) * 1000000)::int8 END"
)

// Micros is an SQL expression for the time in a column, in microseconds since
// 1970; NULL for no time and for an infinite one. A time without a zone counts as UTC.
func Micros(column string) string { return fmt.Sprintf(micros, pgsql.Name(column)) }

// ReadOrder returns the order of a table's rows: by the times of their commits,
// where the server has them (track_commit_timestamp), by a primary key that grows,
// by the column with their time ("" for none), or by their places. The first two
// of these count. With several tables the time is before the key, which counts in
// its own table only.
func ReadOrder(ctx context.Context, conn *pgx.Conn, table pg.Table, timeColumn string, several bool) (Order, error) {
	o := Order{Numbers: [2]string{noNumber, noNumber}, By: "place in the table"}
	column, typ, err := growingKey(ctx, conn.PgConn(), table)
	if err != nil {
		return o, fmt.Errorf("read primary key of %s: %w", table, err)
	}
	var tracked bool
	if err := conn.QueryRow(ctx, `SELECT current_setting('track_commit_timestamp')::bool`).Scan(&tracked); err != nil {
		return o, fmt.Errorf("read track_commit_timestamp: %w", err)
	}
	if column != "" {
		o.first(keyNumber(column, typ), "primary key "+column)
	}
	// Two numbers count: the key puts the events of a transaction in order, which
	// have the same time.
	if timeColumn != "" && (several && !tracked || column == "") {
		o.first(Micros(timeColumn), "column "+timeColumn)
	}
	if tracked {
		o.first("(extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::int8", "time of the commit")
		o.Exact = true
	}
	return o, nil
}

// first puts a number before the others, of which the last goes.
func (o *Order) first(number, by string) {
	if o.Numbers[0] == noNumber {
		o.By = by
	} else {
		o.By = by + ", then " + o.By
	}
	o.Numbers = [2]string{number, o.Numbers[0]}
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
				o.first(keyNumber(pgsql.Name(name), "int8"), "column "+name)
			case pgtype.TimestampOID, pgtype.TimestamptzOID:
				o.first(Micros(name), "column "+name)
			case pgtype.UUIDOID:
				o.first(keyNumber(pgsql.Name(name), "uuid"), "column "+name)
			default:
				continue
			}
			o.Exact = false
		}
	}
}

// keyNumber is the number of a quoted column of an integer or a UUID: of that, the
// first 64 bits, which have the time and a version that keeps them positive.
func keyNumber(column, typ string) string {
	if typ == "uuid" {
		return "('x' || substr(replace(" + column + "::text, '-', ''), 1, 16))::bit(64)::int8"
	}
	return column + "::int8"
}
