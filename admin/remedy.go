package admin

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// codeLockNotAvailable is lock_not_available (PostgreSQL documentation,
// "PostgreSQL Error Codes"): a question waited for a lock for as long as it may.
const codeLockNotAvailable = "55P03"

// lockRemedy shows who holds what a question waits for, also while it waits.
const lockRemedy = "see who holds the lock: SELECT pid, locktype, relation::regclass, mode, query FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE mode = 'AccessExclusiveLock' AND granted;"

// remedyOf is failure.RemedyOf, and knows what to do about a lock.
func remedyOf(err error) string {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if remedy := failure.RemedyOf(err); remedy != "" || !ok || pg.Code != codeLockNotAvailable {
		return remedy
	}
	return lockRemedy
}
