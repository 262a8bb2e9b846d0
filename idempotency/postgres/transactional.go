package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/usercode"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/hook"
)

// defaultIdleTimeout is the default of Options.IdleTimeout.
const defaultIdleTimeout = time.Minute

// Transactional is a Store for handlers with a transaction: everything written
// through Tx commits together with the key's completion, or not at all.
//
// A message takes a single connection of the pool and two round trips beside
// the handler's: the claim, which counts the attempt and commits by itself,
// with the begin of the transaction; and the completion with the commit. After
// a duplicate, the next message takes a round trip for the claim alone, so that
// another duplicate takes no more.
//
// Where a consumer's worker has the next message at hand, the next claim goes
// with the commit: a single round trip beside the handler's. Not so with
// a message tried again, under a stricter isolation than read committed, also
// by the server's default, on a pool with hooks between two users of a
// connection (PrepareConn, AfterRelease), or without another free
// connection.
type Transactional struct {
	*Store
	pool  *pgxpool.Pool
	begin string
	// chain ends the claim's transaction and begins the handler's.
	chain []string
	// ahead allows messages to share a connection in turn.
	ahead bool
	idle  string // the IdleTimeout in milliseconds, empty for the server's own
	// fresh tells that the last message was new, and so the next may be.
	fresh atomic.Bool
	// troubled is when there was trouble last, nil if there was none.
	troubled atomic.Pointer[time.Time]
}

// wary is for how long each message takes a separate claim, which waits for the
// disk, after trouble: a connection was lost, or a claim failed a commit. The
// server may have crashed, and because of a message: the attempts would be
// forgotten each time, and the message never be given up.
const wary = time.Minute

func (x *Transactional) trouble() {
	now := time.Now()
	x.troubled.Store(&now)
}

// hasty tells whether the next message may be new, and its claim need not wait
// for the disk.
func (x *Transactional) hasty(ctx context.Context) bool {
	troubled := x.troubled.Load()
	return x.fresh.Load() && (troubled == nil || time.Since(*troubled) > hook.Interval(ctx, wary))
}

var _ storage.Transactor = (*Transactional)(nil)

// NewTransactional returns a store on a table that Schema made, in the database
// of the business tables, or an error naming the impossible option. The
// pool stays the caller's; handlers must not wait for another of its
// connections, or all of them may wait for each other.
func NewTransactional(pool *pgxpool.Pool, o Options) (*Transactional, error) {
	if usercode.IsNil(pool) {
		return nil, errors.New("make transactional store: a pool of PostgreSQL is required")
	}
	o.IdleTimeout = cmp.Or(o.IdleTimeout, defaultIdleTimeout)
	store, err := newStore(pool, o)
	if err != nil {
		return nil, err
	}
	begin, chain := "begin", []string{"commit and chain"}
	switch o.Isolation {
	case "":
	case pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable:
		begin += " isolation level " + string(o.Isolation)
		chain = []string{"commit", begin}
	default:
		return nil, fmt.Errorf("make transactional store: Isolation is %q, which is no isolation level", o.Isolation)
	}
	var idle string
	if o.IdleTimeout > 0 {
		idle = strconv.FormatInt(max(1, o.IdleTimeout.Milliseconds()), 10)
	}
	return &Transactional{
		Store: store, pool: pool, begin: begin, chain: chain, idle: idle,
		ahead: !hooked(pool.Config()),
	}, nil
}

// IdleTimeout returns Options.IdleTimeout, or 0 for the server's own. New refuses
// a Processor with a longer HandlerTimeout.
func (x *Transactional) IdleTimeout() time.Duration { return max(0, x.options.IdleTimeout) }

// spare tells whether a connection is free, so nobody waits: nor for a connection
// kept for the next message, which may be the waiting message.
func (x *Transactional) spare() bool {
	pool := x.pool.Stat()
	return pool.AcquiredConns() < pool.MaxConns()
}

// hooked tells whether something is to be done with a connection between two
// users.
func hooked(c *pgxpool.Config) bool {
	return c.BeforeAcquire != nil || c.PrepareConn != nil || c.AfterRelease != nil //nolint:staticcheck // deprecated, and still in use
}

// Reserve implements storage.Transactor. Reserve waits for a connection.
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
