package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// ask reads a single row about rights.
func ask(ctx context.Context, conn *pgx.Conn, sql string, args []any, into ...any) error {
	if err := conn.QueryRow(ctx, sql, args...).Scan(into...); err != nil {
		return fmt.Errorf("read privileges: %w", err)
	}
	return nil
}

// MayRead tells whether the role may read the table, and whether row-level
// security hides rows from the role.
func MayRead(ctx context.Context, conn *pgx.Conn, t pg.Table) (may, hidden bool, err error) {
	err = ask(ctx, conn, `SELECT has_schema_privilege($1, 'USAGE') AND has_table_privilege($2, 'SELECT'), row_security_active($2)`,
		[]any{t.Schema, t.Quoted()}, &may, &hidden)
	return may, hidden, err
}

// HasReplication tells whether the role's attributes have the right to
// replicate. Amazon RDS has a separate role for that.
func HasReplication(ctx context.Context, conn *pgx.Conn) (has bool, err error) {
	err = ask(ctx, conn, `SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user`, nil, &has)
	return has, err
}

// MayCreatePublication tells whether the role may create a publication of the
// tables.
func MayCreatePublication(ctx context.Context, conn *pgx.Conn, tables []TableInfo) (may bool, err error) {
	err = ask(ctx, conn, `SELECT has_database_privilege(current_database(), 'CREATE') AND `+ownsAll, []any{OIDs(tables)}, &may)
	return may, err
}

// ownsAll is true for the owner of all tables in the first parameter.
const ownsAll = `NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = ANY ($1) AND NOT pg_has_role(c.relowner, 'USAGE'))`

// Owned tells whether the role owns the publication and the tables, as adding
// them takes.
func (p Publication) Owned(ctx context.Context, conn *pgx.Conn, tables []TableInfo) (owned bool, err error) {
	err = ask(ctx, conn, `SELECT pg_has_role(p.pubowner, 'USAGE') AND `+ownsAll+` FROM pg_publication p WHERE p.oid = $2`,
		[]any{OIDs(tables), p.OID}, &owned)
	return owned, err
}

// RoleExists looks up a role by name.
func RoleExists(ctx context.Context, conn *pgx.Conn, role string) (exists bool, err error) {
	err = ask(ctx, conn, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)`, []any{role}, &exists)
	return exists, err
}

// CheckGrantee returns the server's error (undefined_object) where nothing can
// be granted to the name: no role, nor public.
func CheckGrantee(ctx context.Context, conn *pgx.Conn, name string) error {
	_, err := conn.Exec(ctx, `SELECT has_schema_privilege($1::name, 'pg_catalog', 'USAGE')`, name)
	return err
}
