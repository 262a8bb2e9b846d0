package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// MissingTable is the error of a missing table of source.tables.
type MissingTable struct {
	Table pg.Table
	// Near is the table that may be meant; zero for none. SameName tells that
	// it has the name in another schema, CaseOnly that only upper and lower
	// case differ.
	Near               pg.Table
	SameName, CaseOnly bool
}

func (m *MissingTable) Error() string {
	return fmt.Sprintf("source.tables: table %s does not exist in the database", m.Table)
}

// remedy never leads to a second table beside the one that is meant.
func (m *MissingTable) remedy() string {
	const create = "create it with `cdc-outbox setup`"
	switch {
	case m.Near == (pg.Table{}):
		return create + ", or correct source.tables"
	case m.CaseOnly:
		return "did you mean " + m.Near.String() + "? As in SQL, upper case counts in double quotes only. " + InSourceTables(m.Near)
	}
	return "did you mean " + m.Near.String() + "? " + InSourceTables(m.Near) + "; if a new table is wanted, " + create
}

// InSourceTables says how the configuration names the table.
func InSourceTables(t pg.Table) string {
	name := t.String()
	if strings.Contains(name, `"`) {
		name = "'" + strings.ReplaceAll(name, "'", "''") + "'"
	}
	return "In the configuration: source.tables: [" + name + "]"
}

// mostNear bounds the comparisons.
const mostNear = 10_000

// Missing returns the error of class failure.Config of a missing table. It
// wraps a MissingTable.
func Missing(ctx context.Context, conn *pgx.Conn, t pg.Table) error {
	m, err := FindNamesake(ctx, conn, t)
	if err != nil {
		return err
	}
	return &failure.Error{Class: failure.Config, Remedy: m.remedy(), Err: m}
}

// FindNamesake looks for another table that may be meant, whether or not the
// name exists.
func FindNamesake(ctx context.Context, conn *pgx.Conn, t pg.Table) (*MissingTable, error) {
	m := &MissingTable{Table: t}
	rows, _ := conn.Query(ctx, `
		SELECT n.nspname::text, c.relname::text
		  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		 WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
		   AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%' AND (n.nspname::text, c.relname::text) <> ($1::text, $2::text)
		 ORDER BY lower(c.relname) <> lower($2::text), lower(n.nspname) <> lower($1::text), n.nspname, c.relname LIMIT $3`, t.Schema, t.Name, mostNear)
	others, err := pgx.CollectRows(rows, pgx.RowToStructByPos[pg.Table])
	if err != nil {
		return nil, fmt.Errorf("look for tables with names like %s: %w", t, err)
	}
	m.suggest(others)
	return m, nil
}

// suggest finds the nearest of the tables, ordered by how near they are.
func (m *MissingTable) suggest(others []pg.Table) {
	var names []string
	for _, o := range others {
		switch same := strings.EqualFold(o.Schema, m.Table.Schema); {
		case strings.EqualFold(o.Name, m.Table.Name):
			m.Near, m.SameName, m.CaseOnly = o, true, same
			return
		case o.Schema == m.Table.Schema:
			names = append(names, o.Name)
		}
	}
	if name := nearest.To(m.Table.Name, names); name != "" {
		m.Near = pg.Table{Schema: m.Table.Schema, Name: name}
	}
}

// TableOf returns the table of an OID; the zero Table for none.
func TableOf(ctx context.Context, conn *pgx.Conn, oid uint32) (t pg.Table, err error) {
	err = conn.QueryRow(ctx, `SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid = $1`, oid).Scan(&t.Schema, &t.Name)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return pg.Table{}, fmt.Errorf("look for the table of OID %d: %w", oid, err)
	}
	return t, nil
}
