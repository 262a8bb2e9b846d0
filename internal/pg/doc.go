// Package pg has the values of PostgreSQL that all parts speak of: positions in
// the log, tables and rows. Of our packages it imports only the quoting of SQL,
// and it asks no server.
package pg
