// Package table reads values that the connector keeps in a table of PostgreSQL (claim_check.store:
// table), with pgx or database/sql, and without a driver of its own.
package table

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/idempotency/claimcheck"
)

var _ claimcheck.Store = (*Store)(nil)

// DefaultName is the table by default.
const DefaultName = "public.cdc_outbox_claims"

// Store is the claimcheck.Store of a table. A value is in memory as a whole.
type Store struct {
	name  string
	query func(ctx context.Context, sql string, args ...any) row
}

// PGXConn is a pool or a connection of pgx. W is pgx's row, inferred by Go.
type PGXConn[W interface{ Scan(dest ...any) error }] interface {
	QueryRow(ctx context.Context, sql string, args ...any) W
}

type row interface{ Scan(dest ...any) error }

// PGX reads by pgx. name is claim_check.table.name with its schema, as SQL; "" is DefaultName. The
// role needs SELECT on the table.
func PGX[W interface{ Scan(dest ...any) error }](conn PGXConn[W], name string) *Store {
	return newStore(name, func(ctx context.Context, sql string, args ...any) row { return conn.QueryRow(ctx, sql, args...) })
}

// SQLConn is a *sql.DB or *sql.Conn.
type SQLConn interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// SQL is PGX for database/sql.
func SQL(conn SQLConn, name string) *Store {
	return newStore(name, func(ctx context.Context, sql string, args ...any) row { return conn.QueryRowContext(ctx, sql, args...) })
}

func newStore(name string, query func(ctx context.Context, sql string, args ...any) row) *Store {
	if name == "" {
		name = DefaultName
	}
	return &Store{name, query}
}

// Open implements claimcheck.Store.
func (s *Store) Open(ctx context.Context, place string) (io.ReadCloser, error) {
	id, ours := strings.CutPrefix(place, "table:"+s.name+"/")
	if !ours {
		return nil, fmt.Errorf("%w: the table here is %s", claimcheck.ErrElsewhere, s.name)
	}
	// A single row in any case: drivers differ in the error of none.
	var found bool
	var value []byte
	err := s.query(ctx, `SELECT c.id IS NOT NULL, c.value FROM (SELECT) AS one LEFT JOIN `+s.name+` c ON c.id = $1`, id).Scan(&found, &value)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, claimcheck.ErrGone
	}
	return io.NopCloser(bytes.NewReader(value)), nil
}
