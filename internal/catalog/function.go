package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Function is a function found in a schema.
type Function struct {
	Schema string
	// Current says that body, security and search path are the expected ones.
	Current bool
}

// FindFunction looks for a function in all schemas, by name and types of
// arguments. Of several, it returns the first with another body than expected,
// SECURITY DEFINER, or another search path than pg_catalog, pg_temp.
func FindFunction(ctx context.Context, conn *pgx.Conn, name, arguments, body string) (f Function, ok bool, err error) {
	err = conn.QueryRow(ctx, `
		SELECT n.nspname::text, p.prosrc = $1 AND NOT p.prosecdef
		       AND p.proconfig IS NOT DISTINCT FROM ARRAY['search_path=pg_catalog, pg_temp']
		  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
		 WHERE p.proname = $2 AND oidvectortypes(p.proargtypes) = $3
		 ORDER BY 2, 1 LIMIT 1`, body, name, arguments).Scan(&f.Schema, &f.Current)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return f, false, nil
	case err != nil:
		return f, false, fmt.Errorf("look up function %s: %w", name, err)
	}
	return f, true, nil
}
