package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// OpenTransaction is a client's transaction that has not ended. Roles see those of
// other roles only with pg_read_all_stats.
type OpenTransaction struct {
	PID         int32   `json:"pid"`
	Application string  `json:"application_name,omitempty"`
	User        string  `json:"user,omitempty"`
	State       string  `json:"state"`
	Seconds     float64 `json:"seconds"`
}

// String names the transaction in a sentence.
func (o OpenTransaction) String() string {
	return fmt.Sprintf("%s, %s, for %s", Holder{PID: o.PID, Application: o.Application, User: o.User}, o.State,
		time.Duration(o.Seconds*float64(time.Second)).Round(time.Second))
}

// LongestTransaction returns the longest open transaction of the database's
// clients, ours apart; nil if none is known.
func LongestTransaction(ctx context.Context, conn *pgx.Conn) (*OpenTransaction, error) {
	var o OpenTransaction
	err := conn.QueryRow(ctx, `
		SELECT pid, COALESCE(application_name, ''), COALESCE(usename::text, ''), state, extract(epoch FROM clock_timestamp() - xact_start)::float8
		  FROM pg_stat_activity
		 WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND xact_start < clock_timestamp() - interval '1 second'
		 ORDER BY xact_start LIMIT 1`).Scan(&o.PID, &o.Application, &o.User, &o.State, &o.Seconds)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for open transactions: %w", err)
	}
	return &o, nil
}
