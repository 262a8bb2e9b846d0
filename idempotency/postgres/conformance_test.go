package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storetest"
)

func TestHistories(t *testing.T) {
	each(t, func(t *testing.T, pool *pgxpool.Pool, o postgres.StoreOptions) {
		s := newStore(t, pool, o)
		storetest.Histories(t, storetest.Subject{Store: s, Operator: s}, storetest.Options{})
	})
}
