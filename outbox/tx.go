package outbox

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
)

// PGXTx is an open transaction of pgx: pgx.Tx, *pgxpool.Tx or a wrapper. R is
// pgx's command tag, inferred by Go. A pool and a connection have no Commit,
// and so do not fit.
type PGXTx[R any] interface {
	Exec(ctx context.Context, sql string, args ...any) (R, error)
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// SQLTx is an open transaction of database/sql: *sql.Tx or a type that embeds
// it, such as *sqlx.Tx. *sql.DB and *sql.Conn have no Commit, and so do not
// fit. The driver may be pgx's stdlib or lib/pq.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}

// Tx is an open transaction for a Writer, made by PGX or SQL. Like the
// transaction inside, it is not for concurrent use.
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

// isNil also finds a nil pointer in an interface, such as the *sql.Tx of a
// failed BeginTx.
func isNil(value any) bool {
	v := reflect.ValueOf(value)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
