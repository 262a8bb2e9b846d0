package retention

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// SQLSTATEs that have a remedy of ours (PostgreSQL documentation, "PostgreSQL
// Error Codes").
const (
	lockNotAvailable      = "55P03"
	insufficientPrivilege = "42501"
	undefinedColumn       = "42703"
	checkViolation        = "23514"
	invalidObject         = "42P17"
	notInRequiredState    = "55000"
	dependentObjects      = "2BP01"
)

var remedies = map[string]string{
	lockNotAvailable:      "none needed: a transaction holds the table or a row; it is tried again",
	insufficientPrivilege: "retention needs SELECT and DELETE on the outbox table; to create and drop partitions its role must be a member of the table's owner: GRANT <owner> TO <role>",
	undefinedColumn:       "set retention.column to the column with the time of writing",
	checkViolation:        "the default partition holds rows of the new partition's time: move or delete them",
	invalidObject:         "if somebody else creates partitions, or for longer than retention.partition_span, set retention.partitions_ahead: 0",
	notInRequiredState:    "if the table has no replica identity, have the publication publish no deletes: ALTER PUBLICATION <name> SET (publish = 'insert')",
	dependentObjects:      "drop what depends on the old partition, or drop the partition with CASCADE",
}

// explain adds what to do about an error of PostgreSQL.
func explain(err error) error {
	remedy, ok := remedies[sqlState(err)]
	if !ok {
		return err
	}
	return &failure.Error{Class: failure.Transient, Remedy: remedy, Err: err}
}

// sqlState is the SQLSTATE of the first error of PostgreSQL in err's tree.
func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
