package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storetest"
)

// tolerance is the time between a statement's looks at the clock, at most, on a
// busy machine.
const tolerance = 100 * time.Millisecond

func TestContract(t *testing.T) {
	o := postgres.Options{MaxResultBytes: 1 << 16}
	s := newStore(t, database(t, o), o)
	storetest.Run(t, func(*testing.T) storetest.Subject {
		return storetest.Subject{Store: s, Operator: s, Tolerance: tolerance, MaxResultBytes: o.MaxResultBytes}
	})
}

// Each way to use a store differs in every kind of call: names, the types of
// parameters, conflicts. They run in turn: the busier the machine, the longer a
// statement takes between the looks at the clock.
func TestHistories(t *testing.T) {
	const oddSchema = `Odd "Schema"`
	for name, v := range map[string]struct {
		options postgres.Options
		change  []func(*pgxpool.Config)
	}{
		"plain":       {},
		"partitioned": {options: postgres.Options{Partitioned: true}},
		"odd table, serializable, simple protocol": {
			options: postgres.Options{Table: oddSchema + ".The Keys"},
			change:  connection("serializable", pgx.QueryExecModeSimpleProtocol),
		},
		"repeatable read, unnamed statements": {change: connection("repeatable read", pgx.QueryExecModeExec)},
	} {
		t.Run(name, func(t *testing.T) {
			pool := connect(t, newDatabase(t), v.change...)
			exec(t, pool, `CREATE SCHEMA `+pgx.Identifier{oddSchema}.Sanitize())
			create(t, pool, v.options)
			s := newStore(t, pool, v.options)
			// A statement reads the clock some time before the commit can be seen, and
			// changes a row after a wait for the lock.
			storetest.Histories(t, storetest.Subject{Store: s, Operator: s, Tolerance: tolerance, ReadsClockFirst: true},
				storetest.Options{Steps: 1000, Lease: 2 * tolerance})
		})
	}
}

// connection sets the defaults of a pool's connections.
func connection(isolation string, mode pgx.QueryExecMode) []func(*pgxpool.Config) {
	return []func(*pgxpool.Config){func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = isolation
		c.ConnConfig.DefaultQueryExecMode = mode
	}}
}
