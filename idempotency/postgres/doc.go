// Package postgres keeps idempotency keys in PostgreSQL.
package postgres
