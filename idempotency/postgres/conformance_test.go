package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storetest"
)

func TestContract(t *testing.T) {
	each(t, func(t *testing.T, pool *pgxpool.Pool, o postgres.StoreOptions) {
		o.MaxResultBytes = 1 << 16
		s := newStore(t, pool, o)
		storetest.Run(t, func(*testing.T) storetest.Subject {
			return storetest.Subject{Store: s, Operator: s, MaxResultBytes: o.MaxResultBytes}
		})
	})
}

func TestHistories(t *testing.T) {
	each(t, func(t *testing.T, pool *pgxpool.Pool, o postgres.StoreOptions) {
		s := newStore(t, pool, o)
		storetest.Histories(t, storetest.Subject{Store: s, Operator: s}, storetest.Options{})
	})
}
