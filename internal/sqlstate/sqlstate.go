// Package sqlstate names the SQLSTATE codes by which errors of PostgreSQL are told
// apart (PostgreSQL documentation, "PostgreSQL Error Codes"): messages are in the
// server's language.
package sqlstate

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// The codes, under PostgreSQL's own names.
const (
	ReadOnlyTransaction        = "25006"
	ForeignKeyViolation        = "23503"
	UniqueViolation            = "23505"
	CheckViolation             = "23514"
	InvalidParameterValue      = "22023"
	DependentObjectsStillExist = "2BP01"
	UndefinedDatabase          = "3D000"
	SerializationFailure       = "40001"
	DeadlockDetected           = "40P01"
	InsufficientPrivilege      = "42501"
	UndefinedColumn            = "42703"
	UndefinedObject            = "42704"
	DuplicateObject            = "42710"
	UndefinedTable             = "42P01"
	InvalidObjectDefinition    = "42P17"
	ConfigurationLimitExceeded = "53400"
	NotInPrerequisiteState     = "55000"
	ObjectInUse                = "55006"
	CannotChangeRuntimeParam   = "55P02"
	LockNotAvailable           = "55P03"
	QueryCanceled              = "57014"
	AdminShutdown              = "57P01"
	CannotConnectNow           = "57P03"
	UndefinedFile              = "58P01"
)

// Of returns the code of an error of the server, or "".
func Of(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
