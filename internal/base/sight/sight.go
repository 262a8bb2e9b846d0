// Package sight tells which transactions a snapshot of PostgreSQL sees, by the
// text of pg_current_snapshot(). A commit that waits for a synchronous standby is
// on disk, and decoded, but no new snapshot sees it before the wait ends.
//
// Invariants:
//
//  1. The zero Snapshot sees nothing.
//
//  2. A transaction id of 32 bits is of the epoch nearest to the snapshot: the
//     server keeps all ids of its log within two thousand million.
//
// Sees needs no care for subtransactions: the log has a transaction's own id, and a
// commit makes all its rows visible at once, those of a prepared one, too. For Wrote
// the snapshot of a slot lists running subtransactions, too; other texts do not.
//
// Non-goals: snapshots of standbys, whose text lacks the running transactions.
package sight

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Snapshot sees the transactions that have ended before it was taken.
type Snapshot struct {
	xmin, xmax uint64   // everything before xmin has ended, nothing from xmax on
	running    []uint64 // between the two, in rising order
}

// Parse reads the text of a pg_snapshot: xmin:xmax:running,running. The snapshot of a slot
// may have an xmin behind its xmax, and sees everything before xmin all the same.
func Parse(text string) (s Snapshot, err error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return Snapshot{}, fmt.Errorf("%q is no snapshot", text)
	}
	number := func(part string) (n uint64) {
		if err == nil {
			n, err = strconv.ParseUint(part, 10, 64)
		}
		return n
	}
	s.xmin, s.xmax = number(parts[0]), number(parts[1])
	if parts[2] != "" {
		for part := range strings.SplitSeq(parts[2], ",") {
			s.running = append(s.running, number(part))
		}
	}
	if err != nil {
		return Snapshot{}, fmt.Errorf("%q is no snapshot: %w", text, err)
	}
	slices.Sort(s.running)
	s.xmax = max(s.xmin, s.xmax)
	return s, nil
}

// Sees reports whether the snapshot sees the transaction, known to have ended or
// to be ending.
func (s Snapshot) Sees(xid uint32) bool {
	behind := int64(int32(uint32(s.xmax) - xid)) // negative: ahead
	return s.sees(s.xmax - uint64(behind))
}

func (s Snapshot) sees(xid uint64) bool {
	if xid < s.xmin {
		return true
	}
	_, runs := slices.BinarySearch(s.running, xid)
	return xid < s.xmax && !runs
}

// Covers reports whether the snapshot sees everything that other sees.
func (s Snapshot) Covers(other Snapshot) bool {
	return s.xmax >= other.xmax && !slices.ContainsFunc(s.running, other.sees)
}

// String is the text for Parse.
func (s Snapshot) String() string {
	return fmt.Sprintf("%d:%d:%s", s.xmin, s.xmax, list(s.running, func(xid uint64) uint64 { return xid }))
}

// firstNormal is the least id of a transaction. Lower ids are those of rows frozen by
// PostgreSQL 9.3 and before.
const firstNormal = 3

// Wrote is the SQL condition of a row with a writer seen by s, the snapshot of a slot.
// A row has the lower 32 bits of the id of its writer, perhaps a subtransaction, also
// once frozen. While the slot stays where it is, the server gives out fewer than 2^31
// ids beyond s: so a later row never meets the condition. An earlier row meets it
// unless its id is older than 2^31 ids.
func (s Snapshot) Wrote() string {
	short := func(xid uint64) uint64 { return uint64(uint32(xid)) }
	sql := fmt.Sprintf("(((xmin::text::int8 - %d) & 4294967295) >= 2147483648 OR xmin::text::int8 < %d)", short(s.xmax), firstNormal)
	if len(s.running) == 0 {
		return sql
	}
	return sql + " AND xmin <> ALL ('{" + list(s.running, short) + "}'::xid[])"
}

func list(xids []uint64, as func(uint64) uint64) string {
	texts := make([]string, len(xids))
	for i, xid := range xids {
		texts[i] = strconv.FormatUint(as(xid), 10)
	}
	return strings.Join(texts, ",")
}
