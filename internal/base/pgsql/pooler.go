package pgsql

// The codes of a pooler that gives each transaction another connection and
// keeps no prepared statements: the statement the driver has prepared is
// another connection's, or this one has it already.
const (
	noSuchStatement    = "26000"
	duplicateStatement = "42P05"
)

// PoolerRemedy is the remedy for a lost statement.
const PoolerRemedy = "a pooler gives each transaction another connection and keeps no prepared statements: connect directly, " +
	"let it keep them (PgBouncer from 1.21: max_prepared_statements), or set default_query_exec_mode=exec for pgx"

// LostStatement reports whether a pooler has lost a statement the driver has
// prepared.
func LostStatement(err error) bool {
	code := State(err)
	return code == noSuchStatement || code == duplicateStatement
}
