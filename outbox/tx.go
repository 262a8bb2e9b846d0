package outbox

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
)

// PGXTx is an open transaction of pgx: pgx.Tx, *pgxpool.Tx or what wraps one. R
// is pgx's command tag, which Go infers. A pool and a connection have no
// Commit, and so do not fit.
type PGXTx[R any] interface {
	Exec(ctx context.Context, sql string, args ...any) (R, error)
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// SQLTx is an open transaction of database/sql: *sql.Tx or what embeds one, such
// as *sqlx.Tx. *sql.DB and *sql.Conn have no Commit, and so do not fit. The
// driver may be pgx's stdlib or lib/pq.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}

// Tx is an open transaction as a Writer takes it; PGX and SQL make one. Using it
// concurrently is as wrong as it is for the transaction inside.
type Tx struct {
	exec func(ctx context.Context, statement string, args ...any) error // nil: there was no transaction
}

// PGX makes a Tx of a transaction of pgx.
func PGX[R any](tx PGXTx[R]) Tx {
	if isNil(tx) {
		return Tx{}
	}
	return Tx{func(ctx context.Context, statement string, args ...any) error {
		_, err := tx.Exec(ctx, statement, args...)
		return err
	}}
}

// SQL makes a Tx of a transaction of database/sql.
func SQL(tx SQLTx) Tx {
	if isNil(tx) {
		return Tx{}
	}
	return Tx{func(ctx context.Context, statement string, args ...any) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	}}
}

var errNoTx = errors.New("transaction is nil: events belong in the transaction that changes the business tables")

// isNil also finds a nil pointer in an interface, such as a *sql.Tx that a
// failed BeginTx returned.
func isNil(value any) bool {
	v := reflect.ValueOf(value)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
