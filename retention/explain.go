package retention

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/wal"
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
	foreignKeyViolation   = "23503"
	deadlockDetected      = "40P01"
	serializationFailure  = "40001"
)

var remedies = map[string]string{
	lockNotAvailable:      "none needed: a transaction holds the table or a row; it is tried again",
	insufficientPrivilege: "retention needs SELECT and DELETE on the outbox table; to create and drop partitions its role must be a member of the table's owner, and may need CREATE on its schema: GRANT <owner> TO <role>; GRANT CREATE ON SCHEMA <schema> TO <role>",
	undefinedColumn:       "set retention.column to the column with the time of writing",
	invalidObject:         "if somebody else creates partitions, or for longer than retention.partition_span, set retention.partitions_ahead: 0",
	notInRequiredState:    "if the table has no replica identity, have the publication publish no deletes: ALTER PUBLICATION <name> SET (publish = 'insert')",
	dependentObjects:      "drop what depends on the old partition, or drop the partition with CASCADE",
	foreignKeyViolation:   "drop the foreign key that refers to the outbox, or let it delete with the row: ON DELETE CASCADE",
}

// isHeld tells whether an error says that somebody else was at the same rows: they
// are left for the next pass.
func isHeld(err error) bool {
	state := sqlState(err)
	return state == lockNotAvailable || state == deadlockDetected || state == serializationFailure
}

// nameTaken is the error for a table that is in a partition's place.
func nameTaken(parent, name wal.Table) error {
	return failure.Configf("rename it, or make it the partition: ALTER TABLE "+parent.Quoted()+" ATTACH PARTITION "+name.Quoted()+" FOR VALUES FROM … TO …",
		"create partition %s: a table of that name exists that is no partition of %s", name, parent)
}

// notByTime is the error for a table whose partitions never get old.
func notByTime(table wal.Table) error {
	return failure.Configf("partition it by RANGE of the time of writing, or turn retention off",
		"%s is partitioned, but not by ranges of time", table)
}

// explain adds what to do about an error of PostgreSQL, or is nil for nil.
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
