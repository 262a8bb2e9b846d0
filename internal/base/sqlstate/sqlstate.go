// Package sqlstate tells errors of PostgreSQL apart by their code (pgerrcode names
// them): messages are in the server's language.
package sqlstate

import "errors"

// Of returns the code of an error of the server, or "". The error is one of pgx
// (pgconn.PgError); it is asked by its method, as this package is for all and
// imports no driver.
func Of(err error) string {
	if server, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return server.SQLState()
	}
	return ""
}
