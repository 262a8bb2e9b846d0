package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// HeldSnapshot is an exported snapshot outliving the next command of the
// creating connection.
type HeldSnapshot struct {
	Name string // for Snapshot.Name
	conn *pgx.Conn
}

// HoldSnapshot takes over the exported snapshot name, as CreateSlot returns it:
// the replication connection may then start to stream. Without a name, the
// snapshot is of the present. HoldSnapshot opens a separate connection to url,
// which Release closes; the snapshot ends with it. While it is held, the server
// removes no row version visible in it.
func HoldSnapshot(ctx context.Context, url, name string) (*HeldSnapshot, error) {
	conn, err := Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("hold snapshot: %w", err)
	}
	held := &HeldSnapshot{conn: conn}
	take := ""
	if name != "" {
		take = "SET TRANSACTION SNAPSHOT " + pgsql.Literal(name) + ";"
	}
	held.Name, err = queryText(ctx, conn.PgConn(), `
		BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
		`+take+`
		SET LOCAL idle_in_transaction_session_timeout = 0;
		SELECT pg_export_snapshot()`)
	if err != nil {
		held.Release()
		return nil, fmt.Errorf("hold snapshot: %w", err)
	}
	return held, nil
}

// Release ends the snapshot. On nil it does nothing.
func (h *HeldSnapshot) Release() {
	if h == nil {
		return
	}
	Close(h.conn)
}
