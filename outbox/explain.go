package outbox

import (
	"errors"
	"fmt"
)

// sqlStater is an error of the server, as the drivers have it: *pgconn.PgError,
// *pq.Error.
type sqlStater interface {
	error
	SQLState() string
}

// remedies tell what to do about an error of the server, by its SQLSTATE
// (PostgreSQL documentation, "PostgreSQL Error Codes").
var remedies = map[string]string{
	"22001": "the column is shorter than the value; the library's limit is 255 characters",                                                     // string_data_right_truncation
	"22P02": "the connection must have the client_encoding UTF8: add client_encoding=UTF8 to its parameters",                                   // invalid_text_representation
	"22P05": "the database's encoding has no form of a character: use a database in UTF8, or a payload column of type bytea (Options.Payload)", // untranslatable_character
	"23505": "an event with this id is there already: this transaction, or one that gave the same id, was carried out before",
	"23514": "a check failed; where the table is partitioned, create the partition for now: see Table.Partition",                  // check_violation
	"25006": "begin the transaction as one that may write",                                                                        // read_only_sql_transaction
	"25P02": "an earlier statement of the transaction failed: roll it back",                                                       // in_failed_sql_transaction
	"42P02": "the transaction writes statements anew and drops their parameters: give the *sql.Tx inside it, such as bun's tx.Tx", // undefined_parameter
	"42501": "grant the role the privilege: INSERT on the table, USAGE on its schema; for messages, EXECUTE on pg_logical_emit_message",
	"42703": "the table has other columns: name them in Options.Table, or add a column for headers (jsonb) or set NoHeaders",
	"42804": "a column has another type: see Columns, and Options.Payload for that of the payload", // datatype_mismatch
	"42P01": "create it with cdc-outbox setup or the SQL in outbox.Schema, or name its schema in Options.Table",
}

// explain adds the remedy, where known. The error stays inside.
func explain(err error) error {
	var server sqlStater
	if !errors.As(err, &server) {
		return err
	}
	if remedy, ok := remedies[server.SQLState()]; ok {
		return fmt.Errorf("%w (%s)", err, remedy)
	}
	return err
}
