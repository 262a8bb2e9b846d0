package poll

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// Permitted returns why the connection's role may not read, lock and mark or delete the
// rows, or nil. The rows are not touched.
func (t *Table) Permitted(ctx context.Context, conn *pgx.Conn) error {
	var may, hidden bool
	err := conn.QueryRow(ctx, `
		SELECT has_schema_privilege($1, 'USAGE') AND has_table_privilege($2, 'SELECT')
		       AND (has_table_privilege($2, 'UPDATE') OR has_any_column_privilege($2, 'UPDATE'))
		       AND (NOT $3 OR has_table_privilege($2, 'DELETE'))
		       AND NOT EXISTS (SELECT FROM unnest($4::text[]) c WHERE NOT has_column_privilege($2, c, 'UPDATE')),
		       row_security_active($2)`, t.Name.Schema, t.Name.Quoted(), t.deletes, t.Marked()).Scan(&may, &hidden)
	role := conn.Config().User
	switch {
	case err != nil:
		return fmt.Errorf("read privileges: %w", err)
	case !may:
		return failure.Configf(strings.Join(t.Grants(role), "; ")+";", "role %s may not do to %s what polling does", role, t.Name)
	case hidden:
		return failure.Configf("ALTER ROLE "+pgsql.Name(role)+" WITH BYPASSRLS;", "row-level security would hide events of %s from role %s", t.Name, role)
	}
	return nil
}
