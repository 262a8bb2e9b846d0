package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Writer is a transaction with an id: it may have written. Decoding cannot begin
// behind it: a new slot waits for its end, and an existing slot keeps the log from
// there on.
type Writer struct {
	PID         int32  // 0 for a prepared transaction
	GID         string // of a prepared transaction
	Application string
	Database    string
	User        string
	// Age is nil if hidden from the role (pg_read_all_stats shows it).
	Age *time.Duration
}

// The view pg_locks shows the transactions of all roles; pg_stat_activity shows the id and
// the age of the role's own only. A session has a lock for each subtransaction, too.
const writersQuery = `
SELECT l.pid, '' AS gid, COALESCE(a.application_name, '') AS application, COALESCE(a.datname::text, '') AS database,
       COALESCE(a.usename::text, '') AS role, extract(epoch FROM now() - a.xact_start)::float8 AS seconds, max(age(l.transactionid)) AS xids
  FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid IS NOT NULL AND l.pid <> pg_backend_pid()
 GROUP BY l.pid, a.application_name, a.datname, a.usename, a.xact_start
UNION ALL
SELECT 0, gid, '', database::text, owner::text, extract(epoch FROM now() - prepared)::float8, age(transaction) FROM pg_prepared_xacts
 ORDER BY xids DESC`

// ReadWriters returns the cluster's writing transactions but our own, in any
// database, the oldest id first.
func ReadWriters(ctx context.Context, conn *pgx.Conn) ([]Writer, error) {
	rows, _ := conn.Query(ctx, writersQuery)
	writers, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (w Writer, err error) {
		var seconds *float64
		err = row.Scan(&w.PID, &w.GID, &w.Application, &w.Database, &w.User, &seconds, new(int32))
		if seconds != nil {
			age := time.Duration(*seconds * float64(time.Second))
			w.Age = &age
		}
		return w, err
	})
	if err != nil {
		return nil, fmt.Errorf("read transactions: %w", err)
	}
	return writers, nil
}

// Blocker is the writer as the cause of a wait.
func (w Writer) Blocker() Blocker {
	b := Blocker{PID: w.PID, GID: w.GID, Database: w.Database, Application: w.Application, User: w.User}
	if w.Age != nil {
		b.Age = *w.Age
	}
	return b
}
