package catalog

import (
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// InFunction reports whether a statement failed in a function it called, such as
// a trigger's, at a name missing or not allowed (class 42): a function sees the
// search path of our sessions. PostgreSQL names the place in the function.
func InFunction(err *pgconn.PgError) bool {
	return err.Where != "" && strings.HasPrefix(err.Code, "42")
}

// TriggerRemedy is the remedy for such an error.
const TriggerRemedy = "fix the function of the trigger or constraint that the error comes from: name its tables and functions with their schema, " +
	"or ALTER FUNCTION … SET search_path, as the connector's is pg_catalog, pg_temp; the role needs privileges for what it does"
