package stream

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// errTwoServers ends a session whose connections lead to different servers, as
// in the middle of a failover: what one says of the slot is not true of the
// other.
var errTwoServers = errors.New("source.url led two connections to different servers, or to one that started or was promoted in between")

// errStandby ends a session with a standby. It may be behind, and its slot missing
// or not ready, while the primary has all; or it is about to be promoted, and is
// judged then. Nor is one read that has a slot of its own: its stream would go on
// over the promotion, with positions of another timeline than the checkpoint says.
var errStandby = &failure.Error{
	Class:  failure.Transient,
	Remedy: "add target_session_attrs=read-write to source.url, and list all hosts there",
	Err:    errors.New("the server is a standby, which is not read until it is promoted"),
}

// samePrimary returns the database that both connections lead to, on a server
// that is no standby.
func samePrimary(ctx context.Context, sql *pgx.Conn, repl *pgconn.PgConn) (database string, err error) {
	a, err := catalog.ReadInstance(ctx, sql.PgConn())
	if err != nil {
		return "", err
	}
	b, err := catalog.ReadInstance(ctx, repl)
	switch {
	case err != nil:
		return "", err
	case a != b:
		return "", errTwoServers
	case a.InRecovery:
		return "", errStandby
	}
	return a.Database, nil
}
