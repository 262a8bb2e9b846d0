package admin

import (
	"github.com/jackc/pgerrcode"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// lockRemedy shows the holders of awaited locks, also during the wait.
const lockRemedy = "see who holds the lock: SELECT pid, locktype, relation::regclass, mode, query FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE mode = 'AccessExclusiveLock' AND granted;"

// remedyOf is failure.RemedyOf, and knows the remedy for a lock.
func remedyOf(err error) string {
	if remedy := failure.RemedyOf(err); remedy != "" || pgsql.State(err) != pgerrcode.LockNotAvailable {
		return remedy
	}
	return lockRemedy
}
