package postgres

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// remedies say what to do about an error of the server, by its SQLSTATE
// (PostgreSQL documentation, "PostgreSQL Error Codes"). Check tells more.
var remedies = map[string]string{
	"25006": "the server accepts no writes: connect to the primary", // read_only_sql_transaction
	"42501": "grant the role SELECT, INSERT and UPDATE on the table; to purge and sweep, DELETE as well",
	"42703": "the table has other columns: make it by DDL; StoreOptions.Partitioned is for a partitioned one only", // undefined_column
	"42P01": "make the table by DDL, or correct its name",                                                          // undefined_table
	"42P10": "the table has another key: set StoreOptions.Partitioned if it is partitioned",                        // invalid_column_reference
}

// explain adds what to do, where that is known.
func explain(err error) error {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return err
	}
	if remedy, ok := remedies[server.Code]; ok {
		return fmt.Errorf("%w (%s)", err, remedy)
	}
	return err
}
