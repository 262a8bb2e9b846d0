package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Context returns the context of a single operation on a server.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), opTimeout)
	t.Cleanup(cancel)
	return ctx
}

// Execute runs statements on the connection, each alone.
func Execute(t testing.TB, conn *pgx.Conn, statements ...string) {
	t.Helper()
	must.OK(t, execute(Context(t), conn, statements))
}

// Await asks a boolean query until it holds.
func Await(t testing.TB, conn *pgx.Conn, query string, args ...any) {
	t.Helper()
	ctx := Context(t)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var ok bool
		if err := conn.QueryRow(ctx, query, args...).Scan(&ok); err != nil {
			t.Fatalf("waiting for %s: %v", query, err)
		}
		if ok {
			return
		}
		<-tick.C
	}
}
