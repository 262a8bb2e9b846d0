// Package pg has the values of PostgreSQL that all parts speak of: positions in
// the log, tables and rows. It imports no other package of ours but for quoting,
// and asks no server.
package pg
