package catalog

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// TablePlace is how far the rows of a snapshot were read, by any number of statements,
// each in a snapshot of its own. No row is read twice: the order is that of a primary
// key, or of the places of row versions in the files of the table and its partitions.
type TablePlace struct {
	// Key is the quoted column of a growing key, by its present name; "": the rows are
	// read as they lie.
	Key string `json:"key,omitempty"`
	// KeyColumn has the number and the type of the key's column, which a new name leaves.
	KeyColumn string `json:"key_column,omitempty"`
	// Parts are the OIDs of the tables with rows of the snapshot: the table itself, its
	// partitions or heirs. Without a Key those read to the end are not among them.
	Parts []uint32 `json:"parts,omitempty"`
	RowPlace
}

// RowPlace is where a row was read; the zero RowPlace is before all rows.
type RowPlace struct {
	// Part is the OID of the row's table, and File that table's file, replaced by
	// whatever moves rows (CLUSTER, VACUUM FULL, TRUNCATE, ALTER TABLE). Both are 0 with
	// a key.
	Part uint32 `json:"part,omitempty"`
	File uint32 `json:"file,omitempty"`
	// After is the row's key or ctid.
	After string `json:"after,omitempty"`
}

// Reach moves the place on to a row.
func (p *TablePlace) Reach(row RowPlace) {
	if p.Part != 0 && p.Part != row.Part {
		read := p.Part
		p.Parts = slices.DeleteFunc(slices.Clone(p.Parts), func(oid uint32) bool { return oid == read })
	}
	p.RowPlace = row
}

// columns are the SQL expressions of a row's place, for PlaceOf. Under the key's own
// name the text would be the order's.
func (p *TablePlace) columns() []string {
	if p.Key != "" {
		return []string{"0", "0", p.Key + "::text AS after"}
	}
	return []string{"tableoid", "pg_relation_filenode(tableoid)", "ctid"}
}

// PlaceOf returns the place of a row read by Snapshot.From.
func PlaceOf(also [][]byte) (p RowPlace, err error) {
	for i, to := range []*uint32{&p.Part, &p.File} {
		oid, err := strconv.ParseUint(string(also[i]), 10, 32)
		if err != nil {
			return p, fmt.Errorf("place of a row: %w", err)
		}
		*to = uint32(oid)
	}
	p.After = string(also[2])
	return p, nil
}

// rest is the SQL condition of the rows behind the place. A part with another file than
// before has none: its rows lie elsewhere now.
func (p *TablePlace) rest() string {
	parts := make([]string, len(p.Parts))
	for i, oid := range p.Parts {
		parts[i] = strconv.FormatUint(uint64(oid), 10)
	}
	sql := "tableoid = ANY ('{" + strings.Join(parts, ",") + "}'::oid[])"
	switch {
	case p.After == "":
		return sql
	case p.Key != "":
		return sql + " AND " + p.Key + " > " + pgsql.Literal(p.After)
	}
	return sql + fmt.Sprintf(" AND (tableoid <> %d OR ctid > %s::tid AND pg_relation_filenode(tableoid) = %d)", p.Part, pgsql.Literal(p.After), p.File)
}

// From has s read the rows with their places: those behind the place that meet the SQL
// condition; "" for all rows of the table.
func (s *Snapshot) From(p *TablePlace, condition string) {
	if condition != "" {
		s.Where = p.rest() + " AND " + condition
	}
	s.OrderBy, s.AnyOrder = p.Key, p.Key == ""
	s.Also = p.columns()
}

// Counted are the rows of a table in a snapshot.
type Counted struct {
	Rows  int64
	Parts []uint32 // see TablePlace
	// Met is how many of the rows meet the condition.
	Met int64
}

// CountRows counts the rows of the table in the snapshot of the name; "": those visible
// now. It takes as long as reading the table.
func CountRows(ctx context.Context, conn *pgx.Conn, name string, table pg.Table, condition string) (n Counted, err error) {
	err = countRows(ctx, conn, name, table, condition, &n)
	// After an error the transaction is open still, or the connection closed.
	if _, endErr := conn.PgConn().Exec(ctx, "ROLLBACK").ReadAll(); err == nil {
		err = endErr
	}
	if err != nil {
		err = unreadable(conn, table, fmt.Errorf("count the rows of %s: %w", table, err))
	}
	return n, err
}

func countRows(ctx context.Context, conn *pgx.Conn, name string, table pg.Table, condition string, n *Counted) error {
	if _, err := beginSnapshot(ctx, conn.PgConn(), name); err != nil {
		return err
	}
	sql := "SELECT tableoid, count(*), count(*) FILTER (WHERE " + condition + ") FROM " + table.Quoted() + " GROUP BY 1"
	return streamRows(ctx, conn.PgConn(), sql, func(values [][]byte) error {
		var numbers [3]int64
		for i := range numbers {
			var err error
			if numbers[i], err = strconv.ParseInt(string(values[i]), 10, 64); err != nil {
				return err
			}
		}
		n.Parts = append(n.Parts, uint32(numbers[0]))
		n.Rows, n.Met = n.Rows+numbers[1], n.Met+numbers[2]
		return nil
	})
}

// keyColumn is the SQL text of a KeyColumn.
const keyColumn = "attnum || ' ' || atttypid"

// FindOrder begins a place before all rows of the table, in the order of the primary key
// if the key grows with time. See ReadSnapshot.
func FindOrder(ctx context.Context, conn *pgx.Conn, table pg.Table) (p TablePlace, err error) {
	p.Key, _, err = growingKey(ctx, conn.PgConn(), table)
	if err == nil && p.Key != "" {
		p.KeyColumn, err = queryText(ctx, conn.PgConn(), "SELECT "+keyColumn+" FROM pg_attribute WHERE attrelid = "+
			pgsql.Literal(table.Quoted())+"::regclass AND quote_ident(attname) = "+pgsql.Literal(p.Key))
	}
	if err != nil {
		err = fmt.Errorf("read the key of %s: %w", table, err)
	}
	return p, err
}

// Follow finds the present name of the key's column; ok is false if the column is gone, or
// of another type.
func (p *TablePlace) Follow(ctx context.Context, conn *pgx.Conn, table pg.Table) (ok bool, err error) {
	if p.Key == "" {
		return true, nil
	}
	name, err := queryText(ctx, conn.PgConn(), "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = "+
		pgsql.Literal(table.Quoted())+"::regclass AND NOT attisdropped AND "+keyColumn+" = "+pgsql.Literal(p.KeyColumn))
	if err != nil {
		return false, fmt.Errorf("find the key of %s: %w", table, err)
	}
	if name != "" {
		p.Key = name
	}
	return name != "", nil
}
