package admin

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/sqltext"
)

// transaction is one that a new slot would have to wait for: it has an id, so
// it may have written.
type transaction struct {
	PID      int32  // 0 for a prepared one
	GID      string // of a prepared one
	Database string
	User     string
	// Age is nil where the role may not see it (pg_read_all_stats shows it).
	Age *time.Duration
}

// pg_locks shows the transactions of all roles; pg_stat_activity shows the age
// of the role's own only.
const transactionsQuery = `
SELECT DISTINCT l.pid, '', COALESCE(a.datname::text, ''), COALESCE(a.usename::text, ''), extract(epoch FROM now() - a.xact_start)::float8
  FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid IS NOT NULL AND l.pid <> pg_backend_pid()
UNION ALL
SELECT 0, gid, database::text, owner::text, extract(epoch FROM now() - prepared)::float8 FROM pg_prepared_xacts
 ORDER BY 5 DESC NULLS LAST`

// readTransactions lists the cluster's writing transactions, oldest first.
func readTransactions(ctx context.Context, conn *pgx.Conn) ([]transaction, error) {
	rows, err := conn.Query(ctx, transactionsQuery)
	if err != nil {
		return nil, fmt.Errorf("read transactions: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t transaction, err error) {
		var seconds *float64
		err = row.Scan(&t.PID, &t.GID, &t.Database, &t.User, &seconds)
		if seconds != nil {
			age := time.Duration(*seconds * float64(time.Second)).Round(time.Second)
			t.Age = &age
		}
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("read transactions: %w", err)
	}
	return list, nil
}

// mostTransactions bounds how many are listed in a message.
const mostTransactions = 5

func describeTransactions(list []transaction) string {
	if len(list) == 0 {
		return "no transaction that this role can see"
	}
	texts := make([]string, 0, mostTransactions)
	for _, t := range list[:min(len(list), mostTransactions)] {
		what := fmt.Sprintf("the transaction of pid %d", t.PID)
		if t.GID != "" {
			what = "the prepared transaction " + sqltext.Literal(t.GID)
		}
		what += fmt.Sprintf(" (%s in database %s", cmp.Or(t.User, "unknown role"), cmp.Or(t.Database, "unknown"))
		if t.Age != nil {
			what += fmt.Sprintf(", open for %s", *t.Age)
		}
		texts = append(texts, what+")")
	}
	if more := len(list) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, ", ")
}

// endTransactions are the statements that end them; a prepared one can only be
// ended in its own database.
func endTransactions(list []transaction) []string {
	var sql []string
	for _, t := range list[:min(len(list), mostTransactions)] {
		if t.GID != "" {
			sql = append(sql, fmt.Sprintf("ROLLBACK PREPARED %s; or COMMIT PREPARED %s; in database %s;", sqltext.Literal(t.GID), sqltext.Literal(t.GID), t.Database))
			continue
		}
		sql = append(sql, fmt.Sprintf("SELECT pg_terminate_backend(%d);", t.PID))
	}
	return sql
}
