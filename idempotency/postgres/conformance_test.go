package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storetest"
)

// tolerance is what may pass on a busy machine between the moment at which a
// statement reads the clock and that at which its commit can be seen.
const tolerance = 100 * time.Millisecond

func TestContract(t *testing.T) {
	each(t, func(t *testing.T, pool *pgxpool.Pool, o postgres.StoreOptions) {
		o.MaxResultBytes = 1 << 16
		s := newStore(t, pool, o)
		storetest.Run(t, func(*testing.T) storetest.Subject {
			return storetest.Subject{Store: s, Operator: s, Tolerance: tolerance, MaxResultBytes: o.MaxResultBytes}
		})
	}, "plain", "partitioned", "serializable")
}

func TestHistories(t *testing.T) {
	each(t, func(t *testing.T, pool *pgxpool.Pool, o postgres.StoreOptions) {
		s := newStore(t, pool, o)
		storetest.Histories(t, storetest.Subject{Store: s, Operator: s, Tolerance: tolerance},
			storetest.Options{Steps: 1500, Lease: 2 * tolerance})
	})
}
