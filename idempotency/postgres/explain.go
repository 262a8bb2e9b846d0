package postgres

import (
	"fmt"

	"github.com/jackc/pgerrcode"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// remedies tell what to do about an error of the server, by its SQLSTATE
// (PostgreSQL documentation, "PostgreSQL Error Codes"). Check tells more.
var remedies = map[string]string{
	pgerrcode.ReadOnlySQLTransaction: "the server accepts no writes: connect to the primary",
	pgerrcode.InsufficientPrivilege: "grant the role SELECT, INSERT and UPDATE on the table; to purge and sweep, DELETE as well; " +
		"where the table has row-level security, give the role a policy that lets it see and write all rows, or disable it",
	pgerrcode.InvalidSQLStatementName:    pgsql.PoolerRemedy,
	pgerrcode.DuplicatePreparedStatement: pgsql.PoolerRemedy,
	pgerrcode.UndefinedColumn:            "the table has other columns: make it by Schema; Options.Partitioned is for a partitioned one only",
	pgerrcode.UndefinedTable:             "make the table by Schema, or correct its name",
	pgerrcode.InvalidColumnReference:     "the table has another key: set Options.Partitioned if it is partitioned",
}

// explain adds the remedy, where known.
func explain(err error) error {
	if remedy, ok := remedies[pgsql.State(err)]; ok {
		return fmt.Errorf("%w (%s)", err, remedy)
	}
	return err
}
