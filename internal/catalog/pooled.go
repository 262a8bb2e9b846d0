package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ConnectPooled is Connect for statements a pooler may hand to other sessions
// from a single transaction to the next. Such poolers refuse most start-up
// parameters, and what is set for a session would be the application's, too. So
// statements belong into transactions beginning with Environment. A server that
// is silent for pooledTimeout breaks it.
func ConnectPooled(ctx context.Context, url string) (*pgx.Conn, error) {
	cfg, login, err := parse(url)
	if err != nil {
		return nil, err
	}
	prepare(&cfg.Config)
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	return open(ctx, cfg, login, nil, pooledTimeout)
}

// pooledTimeout is the longest silence on such a connection. It leaves room for
// the statements that lock and mark rows of a large table, and for the wait for
// notifications; both have shorter limits of their own.
const pooledTimeout = 40 * time.Second

// Pooled does something on such a connection in a transaction with Environment,
// except that values keep the text form of the login. Its changes count only if
// it returns nil.
func Pooled(ctx context.Context, conn *pgx.Conn, do func() error) error {
	if _, err := conn.PgConn().Exec(ctx, "BEGIN ISOLATION LEVEL READ COMMITTED; "+lasting.sql(true)).ReadAll(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	err := do()
	end := "COMMIT"
	if err != nil {
		end = "ROLLBACK"
	}
	if conn.IsClosed() {
		return err
	}
	if _, ended := conn.PgConn().Exec(ctx, end).ReadAll(); err == nil && ended != nil {
		err = fmt.Errorf("commit: %w", ended)
	}
	return err
}
