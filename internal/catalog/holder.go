package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Holder is the connection reading a slot. Roles see the details of their own
// connections only, unless they have pg_read_all_stats.
type Holder struct {
	PID         int32      `json:"pid"`
	Application string     `json:"application_name,omitempty"`
	Address     string     `json:"client_addr,omitempty"` // empty: a Unix socket
	User        string     `json:"user,omitempty"`
	Since       *time.Time `json:"since,omitempty"`
	// FlushLag is the time from a WAL flush on the server to the connector's
	// confirmation; nil while there is nothing recent to measure.
	FlushLag *float64 `json:"flush_lag_seconds,omitempty"`
}

// String names the holder in a sentence.
func (h Holder) String() string {
	s := fmt.Sprintf("pid %d", h.PID)
	if h.Application != "" {
		s += ", " + h.Application
	}
	if h.User != "" {
		s += " as " + h.User
	}
	if h.Address != "" {
		s += " from " + h.Address
	}
	return s
}

// ReadHolder looks up the process reading a slot; a process that has just gone
// is known by its number only.
func ReadHolder(ctx context.Context, conn *pgx.Conn, pid int32) (Holder, error) {
	h := Holder{PID: pid}
	err := conn.QueryRow(ctx, `
		SELECT COALESCE(a.application_name, ''), COALESCE(host(a.client_addr), ''), COALESCE(a.usename::text, ''),
		       a.backend_start, extract(epoch FROM r.flush_lag)::float8
		  FROM pg_stat_activity a LEFT JOIN pg_stat_replication r ON r.pid = a.pid
		 WHERE a.pid = $1`, pid,
	).Scan(&h.Application, &h.Address, &h.User, &h.Since, &h.FlushLag)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return h, fmt.Errorf("look up process %d: %w", pid, err)
	}
	return h, nil
}
