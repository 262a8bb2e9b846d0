package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Terminate ends a server process, unless it has ended by itself.
func Terminate(ctx context.Context, conn *pgx.Conn, pid int32) error {
	_, err := conn.Exec(ctx, "SELECT pg_terminate_backend($1)", pid)
	return err
}

// Cancel ends the statement of a server process.
func Cancel(ctx context.Context, conn *pgx.Conn, pid int32) error {
	_, err := conn.Exec(ctx, "SELECT pg_cancel_backend($1)", pid)
	return err
}

// Client is the other end of a server process.
type Client struct {
	Namesake bool   // has our application_name
	Address  string // for people
}

// ReadClient reads the client of a server process; ok is false for a process
// ended or of another role.
func ReadClient(ctx context.Context, conn *pgx.Conn, pid int32) (c Client, ok bool, err error) {
	err = conn.QueryRow(ctx, `
		SELECT application_name = current_setting('application_name'), COALESCE(host(client_addr), 'a Unix socket')
		  FROM pg_stat_activity WHERE pid = $1 AND application_name IS NOT NULL`, pid).Scan(&c.Namesake, &c.Address)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return c, false, nil
	case err != nil:
		return c, false, fmt.Errorf("look at server process %d: %w", pid, err)
	}
	return c, true, nil
}
