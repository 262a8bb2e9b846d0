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
// may happen during a failover. What one server says of the slot is not true of
// the other.
var errTwoServers = errors.New("source.url led two connections to different servers, or to one that started or was promoted in between")

// errStandby ends a session with a standby. A standby may be behind, and its
// slot may be missing or not ready, although the primary has everything. It is
// judged after its promotion. A standby with a slot of its own is not read
// either: its stream would go on over the promotion, with positions of another
// timeline than the checkpoint has.
var errStandby = &failure.Error{
	Class:  failure.Transient,
	Remedy: "add target_session_attrs=read-write to source.url, and list all hosts there",
	Err:    errors.New("the server is a standby, which is not read until it is promoted"),
}

// samePrimary returns the database that both connections lead to. It is an
// error if they lead to two servers, or to a standby.
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
