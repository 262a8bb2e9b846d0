package admin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// refuseTwin is SQL refusing to create the table beside a table whose name
// differs in upper and lower case only: the application would go on to write to
// the old table, and the connector would read an empty table. With the table
// there, the SQL does nothing.
func refuseTwin(t pg.Table) string {
	return "DO " + pgsql.Dollars("setup", strings.NewReplacer(
		"{{schema}}", pgsql.Literal(t.Schema), "{{name}}", pgsql.Literal(t.Name)).Replace(` DECLARE
    twin text;
BEGIN
    IF EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = {{schema}} AND c.relname = {{name}}) THEN
        RETURN;
    END IF;
    SELECT format('%I.%I', n.nspname, c.relname) INTO twin
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND lower(n.nspname) = lower({{schema}}) AND lower(c.relname) = lower({{name}})
     ORDER BY c.relname LIMIT 1;
    IF twin IS NOT NULL THEN
        RAISE EXCEPTION 'table % is there, and its name differs from that of the table to create in upper and lower case only', twin
            USING ERRCODE = '42P07', HINT = format('in the configuration: source.tables: [%s] (upper case counts in double quotes only); '
                'if a second table is wanted all the same, create it by hand, with the statement of cdc-outbox setup --print', quote_literal(twin));
    END IF;
END `))
}

// classifyTwin is the error of refuseTwin.
func classifyTwin(err error) error {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == pgerrcode.DuplicateTable {
		return failure.Configf(refused.Hint, "%w", err)
	}
	return fmt.Errorf("look for a table of the same name: %w", err)
}
