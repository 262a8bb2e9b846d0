package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// errTwoServers ends a session whose connections lead to different servers, as
// in the middle of a failover: what one says of the slot is not true of the
// other.
var errTwoServers = errors.New("source.url led two connections to different servers, or to one that started or was promoted in between")

// sameServer returns the server that both connections lead to.
func sameServer(ctx context.Context, sql *pgx.Conn, repl *pgconn.PgConn) (wal.Instance, error) {
	a, err := wal.ReadInstance(ctx, sql.PgConn())
	if err != nil {
		return a, err
	}
	b, err := wal.ReadInstance(ctx, repl)
	if err == nil && a != b {
		err = errTwoServers
	}
	return a, err
}

// provisional takes back a verdict of loss that a standby led to: it may be
// behind, and its slot missing or not ready yet, while the primary has all; or
// it is about to be promoted, and is judged then. Only a slot of its own that
// is lost stays so.
func provisional(err error, server wal.Instance, slot wal.Slot) error {
	_, lost := slot.Lost()
	if !server.InRecovery || failure.ClassOf(err) != failure.Loss || lost && !slot.Synced {
		return err
	}
	return &failure.Error{
		Class:  failure.Transient,
		Remedy: "add target_session_attrs=read-write to source.url, and list all hosts there",
		Err:    fmt.Errorf("the server is a standby, which cannot tell for certain: %w", err),
	}
}
