package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/isnil"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// defaultIdleTimeout is that of Options.
const defaultIdleTimeout = time.Minute

// Transactional is a Store in whose handlers everything written through Tx
// commits together with the key's completion, or not at all.
//
// A message takes one connection of the pool and four round trips beside the
// handler's: the claim, which counts the attempt and commits by itself; begin,
// with the lock; completion; commit.
type Transactional struct {
	*Store
	pool  *pgxpool.Pool
	begin string // the SQL before the lock
}

var _ storage.Transactor = (*Transactional)(nil)

// NewTransactional returns a store on a table that Schema made, in the database of
// the business tables, or an error that names the option that cannot work. The
// pool stays the caller's; handlers must not wait for another of its
// connections, or all of them may wait for each other.
func NewTransactional(pool *pgxpool.Pool, o Options) (*Transactional, error) {
	if isnil.Value(pool) {
		return nil, errors.New("make transactional store: a pool of PostgreSQL is required")
	}
	store, err := newStore(pool, o)
	if err != nil {
		return nil, err
	}
	begin := "begin"
	switch o.Isolation {
	case "":
	case pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable:
		begin += " isolation level " + string(o.Isolation)
	default:
		return nil, fmt.Errorf("make transactional store: Isolation is %q, which is no isolation level", o.Isolation)
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = defaultIdleTimeout
	}
	if o.IdleTimeout > 0 {
		begin += fmt.Sprintf("; set local idle_in_transaction_session_timeout = %d", max(1, o.IdleTimeout.Milliseconds()))
	}
	return &Transactional{Store: store, pool: pool, begin: begin}, nil
}

// Reserve implements storage.Transactor. It waits for a connection.
func (x *Transactional) Reserve(ctx context.Context) (storage.Work, error) {
	conn, err := x.pool.Acquire(ctx)
	if err != nil {
		if pool := x.pool.Stat(); pool.AcquiredConns() == pool.MaxConns() {
			err = fmt.Errorf("%w: all %d connections of the pool are in use: give it one for each handler that may run at once (MaxConns): %w",
				storage.ErrBusy, pool.MaxConns(), err)
		}
		return nil, err
	}
	return &work{Transactional: x, conn: conn}, nil
}
