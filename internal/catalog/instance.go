package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Instance is a server between its start and its stop. Connections with equal
// ones lead to the same server, where a URL may lead to several: with several
// hosts, or an address moving in a failover.
type Instance struct {
	Started    string // when, by the server's clock
	InRecovery bool   // a standby
	Database   string // of the connection
}

// ReadInstance asks the server on an ordinary or a replication connection.
func ReadInstance(ctx context.Context, conn *pgconn.PgConn) (Instance, error) {
	results, err := conn.Exec(ctx, `SELECT to_char(pg_postmaster_start_time() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'),
		pg_is_in_recovery()::text, current_database()::text`).ReadAll()
	if err != nil {
		return Instance{}, fmt.Errorf("read server's start: %w", err)
	}
	row := results[0].Rows[0]
	return Instance{Started: string(row[0]), InRecovery: string(row[1]) == "true", Database: string(row[2])}, nil
}
