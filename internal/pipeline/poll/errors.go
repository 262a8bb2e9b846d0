package poll

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// lastingErrors are classes of errors met again by the same statement (of features,
// data, constraints, routines and triggers), and the code for a published table
// without replica identity, object_not_in_prerequisite_state.
var lastingErrors = []string{"0A", "22", "23", "2F", "38", "39", "44", "P0", "55000"}

// remedyLocked is for a statement without an answer: most often the statement waits
// for a lock.
const remedyLocked = "if the table is locked, polling goes on by itself once it is not; this tells who waits for whom: " +
	"SELECT pid, pg_blocking_pids(pid), query FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"

// classify gives an error of a statement its failure.Class and a remedy.
// Unknown errors stay transient: a new session reads the table's definition again.
func classify(err error, t *Table) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok && pgconn.Timeout(err):
		return &failure.Error{Class: failure.Transient, Remedy: remedyLocked, Err: fmt.Errorf("PostgreSQL has not answered in time: %w", err)}
	case !ok:
		return err
	case pg.Code == pgerrcode.InsufficientPrivilege && strings.Contains(pg.Routine, "check_enable_rls"):
		return failure.Configf("let the role see all rows: ALTER ROLE "+pgsql.Name(t.role)+" BYPASSRLS; or read as the table's owner",
			"row-level security would hide events: %w", err)
	case pg.Code == pgerrcode.InsufficientPrivilege:
		return failure.Configf("as the table's owner: "+strings.Join(t.Grants(t.role), "; ")+";", "%w", err)
	case pg.Code == pgerrcode.ReadOnlySQLTransaction:
		return &failure.Error{Class: failure.Transient, Err: err,
			Remedy: "add target_session_attrs=read-write to source.url, and list all hosts there"}
	}
	return err
}

// classifyMark is classify for the marking statement. A failure with a cause in the
// database would come again, and each attempt would publish the rows again. So an
// operator must mend the cause.
func classifyMark(err error, t *Table) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	lasts := func(class string) bool { return strings.HasPrefix(pg.Code, class) }
	switch {
	case !ok:
		return err
	case catalog.InFunction(pg):
		return failure.Configf(catalog.TriggerRemedy+"; until then every poll would publish these rows again", "%w", err)
	case !slices.ContainsFunc(lastingErrors, lasts):
		return classify(err, t)
	}
	return failure.Configf("fix what the error names (a trigger, a constraint, a publication of a table without replica identity); until then every poll would publish these rows again", "%w", err)
}

// errStalled is the cause of the end of a delivery longer than a claim may last.
var errStalled = errors.New("the broker did not take the events within source.poll.claim_timeout")

// errDrained ends the work left after a stop.
var errDrained = errors.New("stopped before everything in flight was acknowledged")

func unmarked(t *Table, marked, of int) error {
	return failure.Configf("look for triggers and rules of the table that suppress the statement; until then every poll would publish these rows again",
		"table %s: the statement that marks published rows changed %s", t.Name, fmt.Sprintf("%d of %d", marked, of))
}
