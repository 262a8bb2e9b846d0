package guard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// PGXTx is an open transaction of pgx: pgx.Tx, *pgxpool.Tx or a wrapper. R is
// pgx's command tag and W the row; Go infers both. A pool and a connection have
// no Commit, and so do not fit.
type PGXTx[R interface{ RowsAffected() int64 }, W interface{ Scan(dest ...any) error }] interface {
	Exec(ctx context.Context, sql string, args ...any) (R, error)
	QueryRow(ctx context.Context, sql string, args ...any) W
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// SQLTx is an open transaction of database/sql: *sql.Tx or a type embedding
// *sql.Tx. *sql.DB and *sql.Conn have no Commit, and so do not fit. The driver must
// be for PostgreSQL and take $1 for a parameter.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	Commit() error
	Rollback() error
}

// Tx is an open transaction for the guards, made by PGX or SQL. Like the
// transaction inside, it is not for concurrent use.
type Tx struct {
	exec  func(ctx context.Context, sql string, args ...any) (affected int64, err error)
	query func(ctx context.Context, sql string, args ...any) interface{ Scan(dest ...any) error }
}

// PGX makes a Tx of a transaction of pgx, which must not be nil.
func PGX[R interface{ RowsAffected() int64 }, W interface{ Scan(dest ...any) error }](tx PGXTx[R, W]) Tx {
	return Tx{
		exec: func(ctx context.Context, sql string, args ...any) (int64, error) {
			tag, err := tx.Exec(ctx, sql, args...)
			if err != nil {
				return 0, err
			}
			return tag.RowsAffected(), nil
		},
		query: func(ctx context.Context, sql string, args ...any) interface{ Scan(dest ...any) error } {
			return tx.QueryRow(ctx, sql, args...)
		},
	}
}

// SQL makes a Tx of a transaction of database/sql, which must not be nil.
func SQL(tx SQLTx) Tx {
	return Tx{
		exec: func(ctx context.Context, sql string, args ...any) (int64, error) {
			result, err := tx.ExecContext(ctx, sql, args...)
			if err != nil {
				return 0, err
			}
			return result.RowsAffected()
		},
		query: func(ctx context.Context, sql string, args ...any) interface{ Scan(dest ...any) error } {
			return tx.QueryRowContext(ctx, sql, args...)
		},
	}
}

// ErrNoRow reports a missing row, perhaps not there yet: the message may have
// overtaken the row's creation; trying again later helps.
var ErrNoRow = errors.New("there is no such row")

// errSuppressed reports a row that fits but was not changed by the database: a
// trigger returned NULL, a rule did something else, or a policy hides the row.
var errSuppressed = errors.New("the database did not change the row: look for a trigger that returns NULL, a rule or a row security policy")

// errUnusable reports a guard made wrong: a mistake in the program; nothing was
// done.
var errUnusable = errors.New("the guard cannot work")

// named returns an error unless all names are there.
func named(names map[string]string) error {
	for _, field := range slices.Sorted(maps.Keys(names)) {
		if names[field] == "" {
			return fmt.Errorf("%w: %s is empty", errUnusable, field)
		}
	}
	return nil
}

// table quotes a table's name, where a dot separates the schema.
func table(name string) string {
	parts := strings.Split(name, ".")
	for i, part := range parts {
		parts[i] = pgsql.Name(part)
	}
	return strings.Join(parts, ".")
}
