package catalog

import (
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// InFunction reports whether a statement failed because a function it called,
// such as a trigger's, names something that is not there or is not allowed to
// it (class 42): a function sees the search path of our sessions. PostgreSQL
// says where in the function it was.
func InFunction(err *pgconn.PgError) bool {
	return err.Where != "" && strings.HasPrefix(err.Code, "42")
}

// TriggerRemedy is what to do about that.
const TriggerRemedy = "fix the function of the trigger or constraint that the error comes from: name its tables and functions with their schema, " +
	"or ALTER FUNCTION … SET search_path, as the connector's is pg_catalog, pg_temp; the role needs privileges for what it does"
