package retention

import (
	"errors"
	"fmt"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// remedies are by SQLSTATE.
var remedies = map[string]string{
	pgerrcode.LockNotAvailable:             "none needed: a transaction holds the table or a row; it is tried again",
	pgerrcode.InsufficientPrivilege:        "retention needs SELECT and DELETE on the outbox table; to create and drop partitions its role must be a member of the table's owner, and may need CREATE on its schema: GRANT <owner> TO <role>; GRANT CREATE ON SCHEMA <schema> TO <role>",
	pgerrcode.UndefinedColumn:              "set retention.column to the column with the time of writing",
	pgerrcode.InvalidObjectDefinition:      "if somebody else creates partitions, or for longer than retention.partition_span, set retention.partitions_ahead: 0",
	pgerrcode.ObjectNotInPrerequisiteState: "if the table has no replica identity, give it, and each of its partitions, a primary key; or have the publication publish no deletes, if no row moves between partitions: ALTER PUBLICATION <name> SET (publish = 'insert')",
	pgerrcode.DependentObjectsStillExist:   "drop what depends on the old partition, or drop the partition with CASCADE",
	pgerrcode.ForeignKeyViolation:          "drop the foreign key that refers to the outbox, or let it delete with the row: ON DELETE CASCADE",
}

// leaveDefault is the remedy for rows in the default partition. To insert them
// into another may publish them again.
const leaveDefault = "none needed: they go when they are old. Do not insert them anew: unless the publication publishes deletions, that publishes them again. " +
	"The default partition itself can become the one for their times: see docs/how-to/partitions.md"

// isHeld reports whether an error means rows held by another session: they are
// left for the next pass.
func isHeld(err error) bool {
	state := pgsql.State(err)
	return state == pgerrcode.LockNotAvailable || state == pgerrcode.DeadlockDetected || state == pgerrcode.SerializationFailure
}

// nameTaken is the error for a table in a partition's place.
func nameTaken(parent, name pg.Table) error {
	return failure.Configf("rename it, or make it the partition: ALTER TABLE "+parent.Quoted()+" ATTACH PARTITION "+name.Quoted()+" FOR VALUES FROM … TO …",
		"create partition %s: a table of that name exists that is no partition of %s", name, parent)
}

// notByTime is the error for a table whose partitions never get old.
func notByTime(table pg.Table) error {
	return failure.Configf("partition it by RANGE of the time of writing, or turn retention off",
		"%s is partitioned, but not by ranges of time", table)
}

// errInFunction is the error of a deletion that failed in a called function.
var errInFunction = errors.New("in a function of the outbox table's")

// deletion is the error of a failed deletion.
func deletion(table pg.Table, err error) error {
	err = fmt.Errorf("delete old rows of %s: %w", table, err)
	if pg, is := errors.AsType[*pgconn.PgError](err); is && catalog.InFunction(pg) {
		return fmt.Errorf("%w (%w)", err, errInFunction)
	}
	return err
}

// withRemedy adds the remedy for an error of PostgreSQL, or is nil for nil.
func withRemedy(err error) error {
	remedy, ok := remedies[pgsql.State(err)]
	if errors.Is(err, errInFunction) {
		remedy, ok = catalog.TriggerRemedy, true
	}
	if !ok {
		return err
	}
	return &failure.Error{Class: failure.Transient, Remedy: remedy, Err: err}
}
