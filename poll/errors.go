package poll

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// SQLSTATE codes (PostgreSQL documentation, "PostgreSQL Error Codes").
const (
	codeInsufficientRights = "42501"
	codeUndefinedTable     = "42P01"
	codeUndefinedColumn    = "42703"
	codeReadOnly           = "25006"
	codeLockNotAvailable   = "55P03"
	classAuthorization     = "28"
)

// classify gives an error of a statement its failure.Class and a remedy. What it
// does not know stays transient: the session is opened anew, which finds out
// more about the table.
func classify(err error, t *Table) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	switch {
	case pg.Code == codeInsufficientRights && strings.Contains(pg.Routine, "check_enable_rls"):
		return failure.Configf("let the role see all rows: ALTER ROLE … BYPASSRLS, or read as the table's owner",
			"row-level security would hide events: %w", err)
	case pg.Code == codeInsufficientRights:
		return failure.Configf("as the table's owner: "+strings.Join(t.Grants("…"), "; ")+";", "%w", err)
	case pg.Code == codeReadOnly:
		return &failure.Error{Class: failure.Transient, Err: err,
			Remedy: "add target_session_attrs=read-write to source.url, and list all hosts there"}
	}
	return err
}

// hasCode reports whether err is the server's error with that code.
func hasCode(err error, code string) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == code
}

// errStalled is the cause of a delivery that took longer than a claim may last.
var errStalled = errors.New("the broker did not take the events within source.poll.claim_timeout")

// errDrained is the cause of the end of what is left after a stop.
var errDrained = errors.New("stopped before everything in flight was acknowledged")

func unmarked(t *Table, marked, of int) error {
	return failure.Configf("look for triggers and rules of the table that suppress the statement; until then every poll would publish these rows again",
		"table %s: the statement that marks published rows changed %s", t.Name, fmt.Sprintf("%d of %d", marked, of))
}
