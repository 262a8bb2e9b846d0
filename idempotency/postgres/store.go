package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/usercode"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// defaultMaxResultBytes bounds a result unless an option says otherwise. Keep
// larger results elsewhere, and the address in the result.
const defaultMaxResultBytes = 1 << 20

// database is what the store needs: a *pgxpool.Pool, or a *pgx.Conn used by a
// single goroutine at a time. Not a transaction: the store's answers must be
// committed.
type database interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// Options of New and NewTransactional. The zero value is valid.
type Options struct {
	// Table is table or schema.table, taken as is; idempotency_keys if empty.
	Table string
	// Partitioned says that the table was made by the Schema of such Options, a
	// property of the table: with a wrong value the store fails at once.
	Partitioned bool
	// MaxResultBytes bounds a result; 1 MiB if 0.
	MaxResultBytes int
	// SweepEvery lets Maintain sweep so often; not at all if 0. A consumer calls
	// Maintain by itself.
	SweepEvery time.Duration
	// Isolation of a Transactional's transactions; the server's default if
	// empty. Serialization failures are failed attempts.
	Isolation pgx.TxIsoLevel
	// IdleTimeout is PostgreSQL's idle_in_transaction_session_timeout in a
	// Transactional's transactions: when a client's machine vanishes, the server
	// frees the key, and everything else locked, after IdleTimeout. A handler
	// without use of the database for so long also ends, as a failed attempt: let
	// IdleTimeout be as long as the Processor's HandlerTimeout. A minute if 0;
	// negative leaves the server's own.
	IdleTimeout time.Duration
}

// Store is a storage.Store and Operator on a table. Its methods block for a
// single round trip (two where somebody else was faster in between), retry
// where PostgreSQL asks for a retry, and may be called concurrently if the
// database's may.
type Store struct {
	db      database
	table   tableName
	options Options
	// texts by slot; otherSlot is the first. 1 if not partitioned.
	texts []statements
	scope string // purgeScopeSQL
}

var (
	_ storage.Store    = (*Store)(nil)
	_ storage.Operator = (*Store)(nil)
)

// New returns a store on a table made by Schema. The database stays the
// caller's. New asks the server nothing; see Check.
func New(db database, o Options) (*Store, error) {
	if o.Isolation != "" || o.IdleTimeout != 0 {
		return nil, errors.New("make idempotency store: Isolation and IdleTimeout are NewTransactional's")
	}
	return newStore(db, o)
}

func newStore(db database, o Options) (*Store, error) {
	if usercode.IsNil(db) {
		return nil, errors.New("make idempotency store: a pool of PostgreSQL is required")
	}
	table, err := parseTable(o.Table)
	if err != nil {
		return nil, err
	}
	if o.MaxResultBytes <= 0 {
		o.MaxResultBytes = defaultMaxResultBytes
	}
	if o.SweepEvery < 0 {
		return nil, fmt.Errorf("SweepEvery, %s, is negative", o.SweepEvery)
	}
	s := &Store{db: db, table: table, options: o}
	first, last := otherSlot, otherSlot
	if o.Partitioned {
		last = slots - 1
	}
	for slot := first; slot <= last; slot++ {
		s.texts = append(s.texts, newStatements(table.String(), o.Partitioned, slot))
	}
	s.scope = newScopeStatement(table.String())
	return s, nil
}

// sql returns the statements for a key.
func (s *Store) sql(key storage.Key) *statements {
	if !s.options.Partitioned {
		return &s.texts[0]
	}
	return &s.texts[slotOf(key.ID)-otherSlot]
}

// Claim implements storage.Store.
func (s *Store) Claim(ctx context.Context, key storage.Key, req storage.ClaimRequest) (storage.Claim, error) {
	claim, _, err := s.claim(ctx, func(sql string, args []any, a *claimAnswer) error {
		return a.scan(s.db.QueryRow(ctx, sql, args...))
	}, key, req, nil)
	return claim, err
}

// claim claims by a query of a single row, in turn with other claims of the
// key; with a lock, only while nobody has the advisory lock. locked tells that
// somebody has the lock, and the key was not claimed.
func (s *Store) claim(ctx context.Context, query func(sql string, args []any, a *claimAnswer) error, key storage.Key, req storage.ClaimRequest, lock *int64) (_ storage.Claim, locked bool, err error) {
	if err := key.Validate(); err != nil {
		return storage.Claim{}, false, err
	}
	if err := req.Validate(); err != nil {
		return storage.Claim{}, false, err
	}
	sql := s.sql(key).claim
	args := []any{key.Scope, key.ID, string(req.Fingerprint), req.Owner, micros(req.Lease), micros(req.Retention)}
	turn := lockHash(claimLock, s.table, key)
	args = append(args, int32(turn>>32), int32(turn))
	if lock != nil {
		sql, args = s.sql(key).claimLocked, append(args, *lock)
	}
	var a claimAnswer
	err = retry(ctx, func() error { return query(sql, args, &a) })
	if err != nil {
		return storage.Claim{}, false, fmt.Errorf("claim %s: %w", key, explain(err))
	}
	if a.mismatch {
		return storage.Claim{}, false, fmt.Errorf("claim %s: %w", key, storage.ErrMismatch)
	}
	claim, err := a.claim(key, req.Owner)
	return claim, a.state == "locked", err
}

// claimAnswer is claimSQL's row.
type claimAnswer struct {
	state    string
	fence    int64
	attempts int
	vanished int // a granted claim's, as is excused
	excused  int
	reason   string
	result   []byte
	mismatch bool
	wait     int64 // µs; meaningless for states not waiting
}

// scan reads the answer of claimSQL.
func (a *claimAnswer) scan(row pgx.Row) error {
	return row.Scan(&a.state, &a.fence, &a.attempts, &a.vanished, &a.excused, &a.reason, &a.result, &a.mismatch, &a.wait)
}

// scanFirst reads claimFirstSQL's.
func (a *claimAnswer) scanFirst(row pgx.Row) error {
	*a = claimAnswer{state: "claimed", attempts: 1}
	return row.Scan(&a.fence)
}

// granted is claim, where the state is known to be claimed.
func (a claimAnswer) granted(key storage.Key, owner string) storage.Claim {
	return storage.Claim{
		Outcome: storage.Claimed, Lease: storage.Lease{Key: key, Owner: owner, Fence: a.fence},
		Attempts: a.attempts, Vanished: a.vanished, Excused: a.excused, Reason: a.reason, Layer: storage.LayerStore,
	}
}

func (a claimAnswer) claim(key storage.Key, owner string) (storage.Claim, error) {
	c := storage.Claim{Attempts: a.attempts, Reason: a.reason, Layer: storage.LayerStore}
	switch a.state {
	case "claimed":
		return a.granted(key, owner), nil
	case "completed":
		c.Outcome, c.Result = storage.Duplicate, a.result
	case "processing":
		c.Outcome, c.Wait = storage.InProgress, time.Duration(a.wait)*time.Microsecond
	case "retryable":
		c.Outcome, c.Wait = storage.NotDue, time.Duration(a.wait)*time.Microsecond
	case "failed":
		c.Outcome = storage.GivenUp
	case "locked": // by a handler, so there is no outcome yet
	default:
		return storage.Claim{}, fmt.Errorf("claim %s: unknown state %q", key, a.state)
	}
	return c, nil
}
