// Package pg has the values of PostgreSQL that all parts speak of: positions in
// the log, tables and rows. It imports only pgsql of our packages, for
// quoting, and asks no server.
package pg
