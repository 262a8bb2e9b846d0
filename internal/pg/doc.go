// Package pg has PostgreSQL's values, common to all parts: positions in the log, tables
// and rows. Of our packages it imports only the quoting of SQL, and asks no server.
package pg
