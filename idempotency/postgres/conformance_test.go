package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storetest"
)

// tolerance is what may pass on a busy machine between the moments at which one
// statement reads the clock.
const tolerance = 100 * time.Millisecond

func TestContract(t *testing.T) {
	o := postgres.StoreOptions{MaxResultBytes: 1 << 16}
	s := newStore(t, database(t, o), o)
	storetest.Run(t, func(*testing.T) storetest.Subject {
		return storetest.Subject{Store: s, Operator: s, Tolerance: tolerance, MaxResultBytes: o.MaxResultBytes}
	})
}

// What the variants have of their own shows in every kind of call: names, the
// types of parameters, conflicts. They run one after another: the busier the
// machine, the longer a statement takes between its looks at the clock.
func TestHistories(t *testing.T) {
	each(t, func(t *testing.T, pool *pgxpool.Pool, o postgres.StoreOptions) {
		s := newStore(t, pool, o)
		// A statement reads the clock some time before its commit can be seen,
		// and changes a row that it waited for.
		storetest.Histories(t, storetest.Subject{Store: s, Operator: s, Tolerance: tolerance, ReadsClockFirst: true},
			storetest.Options{Steps: 1000, Lease: 2 * tolerance})
	})
}
