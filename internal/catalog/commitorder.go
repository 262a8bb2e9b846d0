package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

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
// by the column with their time ("" for none), or by their places. The last two
// numbers of these that there are count.
func ReadOrder(ctx context.Context, conn *pgx.Conn, table pg.Table, timeColumn string) (Order, error) {
	o := Order{Numbers: [2]string{noNumber, noNumber}, By: "place in the table"}
	column, typ, err := growingKey(ctx, conn.PgConn(), table)
	if err != nil {
		return o, fmt.Errorf("read primary key of %s: %w", table, err)
	}
	switch {
	case typ == "uuid":
		// The first 64 bits have the time, and a version that keeps them positive.
		o.Numbers[0] = "('x' || substr(replace(" + column + "::text, '-', ''), 1, 16))::bit(64)::int8"
		o.By = "primary key " + column + " (UUID version 7)"
	case column != "":
		o.Numbers[0], o.By = column+"::int8", "primary key "+column
	case timeColumn != "":
		o.Numbers[0], o.By = Micros(timeColumn), "column "+timeColumn
	}
	var tracked bool
	if err := conn.QueryRow(ctx, `SELECT current_setting('track_commit_timestamp')::bool`).Scan(&tracked); err != nil {
		return o, fmt.Errorf("read track_commit_timestamp: %w", err)
	}
	if tracked {
		o.Numbers[1] = o.Numbers[0]
		o.Numbers[0] = "(extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::int8"
		o.By, o.Exact = "time of the commit, then "+o.By, true
	}
	return o, nil
}
