// Package pg has the values of PostgreSQL that all parts speak of: positions in
// the log, tables and rows. Of our packages, only the quoting of SQL is
// imported, and no server asked.
package pg
