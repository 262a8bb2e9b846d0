package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
)

// A handler given to another Runner fails with the reason, instead of panicking.
func TestThereIsNoTransactionWithoutTransactional(t *testing.T) {
	ctx := context.Background()
	tx := postgres.Tx(ctx)
	_, execErr := tx.Exec(ctx, "SELECT 1")
	rows, queryErr := tx.Query(ctx, "SELECT 1")
	rows.Close()
	_, beginErr := tx.Begin(ctx)
	var n int
	for name, err := range map[string]error{
		"exec": execErr, "query": queryErr, "begin": beginErr,
		"row":   tx.QueryRow(ctx, "SELECT 1").Scan(&n),
		"batch": tx.SendBatch(ctx, nil).Close(), "commit": tx.Commit(ctx), "rollback": tx.Rollback(ctx),
	} {
		if !errors.Is(err, postgres.ErrNoTransaction) {
			t.Errorf("%s: %v", name, err)
		}
	}
	objects := tx.LargeObjects()
	if _, err := objects.Create(ctx, 0); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("large objects: %v", err)
	}
	if tx.Conn() != nil {
		t.Error("it has a connection")
	}
}
