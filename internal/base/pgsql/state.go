package pgsql

import "errors"

// State returns the SQLSTATE of an error of the server, or "". The error is one
// of pgx (pgconn.PgError), asked by its method.
func State(err error) string {
	if server, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return server.SQLState()
	}
	return ""
}
