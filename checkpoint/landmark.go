package checkpoint

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Landmark is a transaction by which a log is known again. Positions alone are
// not enough: another log may have begun as a copy of this one, as after a
// failover or when a disk was put back. The LSN of the commit record, the
// transaction's id and the microsecond of its commit are the same in each
// replay (PostgreSQL documentation, "Logical Replication Message Formats",
// Begin), and in no other log.
//
// Without an XID it is only a position: the log has had no event of ours since,
// so there is no transaction to know it by. The zero Landmark means that
// nothing is known.
type Landmark struct {
	Commit pg.LSN
	XID    uint32
	Time   time.Time
}

// LandmarkOf is the transaction of a row.
func LandmarkOf(row *pg.Row) Landmark {
	return Landmark{Commit: row.Position.CommitLSN, XID: row.XID, Time: row.CommitTime}
}

// Scope names the events that landmarks are taken from: the rows of the tables
// and, with messages, the logical messages of the prefix. A landmark of another
// scope proves nothing.
func Scope(tables []pg.Table, messages bool, prefix string) string {
	names := make([]string, 0, len(tables)+1)
	for _, t := range tables {
		names = append(names, t.String())
	}
	slices.Sort(names)
	if messages {
		names = append(names, "messages:"+prefix)
	}
	return strings.Join(names, ",")
}

// IsZero reports whether nothing is known.
func (l Landmark) IsZero() bool { return l == Landmark{} }

// String names the transaction for an operator.
func (l Landmark) String() string {
	return fmt.Sprintf("%d at %s of %s", l.XID, l.Commit, l.Time.Format(time.RFC3339Nano))
}

// Same reports whether both are the same transaction.
func (l Landmark) Same(o Landmark) bool {
	return l.Commit == o.Commit && l.XID == o.XID && l.Time.Equal(o.Time)
}
