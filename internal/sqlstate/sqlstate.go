// Package sqlstate tells errors of PostgreSQL apart by their code (pgerrcode names
// them): messages are in the server's language.
package sqlstate

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// Of returns the code of an error of the server, or "".
func Of(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
