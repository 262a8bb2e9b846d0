package pg

import (
	"cmp"

	"github.com/jackc/pglogrepl"
)

// LSN is a byte position in the write-ahead log, printed as X/X.
type LSN = pglogrepl.LSN

// ParseLSN reads an LSN as it is printed.
func ParseLSN(text string) (LSN, error) { return pglogrepl.ParseLSN(text) }

// Position identifies one row change for good: the LSN of its transaction's
// commit record and its index among the transaction's changes, from 0, counted
// before any filter. Positions of one timeline are ordered as their
// transactions committed, and a replay repeats them. The LSN of the row itself
// gives no order: rows of concurrent transactions interleave in the log.
type Position struct {
	CommitLSN LSN
	Seq       uint32
}

// Compare returns -1, 0 or +1 as p is before, at or after q.
func (p Position) Compare(q Position) int {
	if c := cmp.Compare(p.CommitLSN, q.CommitLSN); c != 0 {
		return c
	}
	return cmp.Compare(p.Seq, q.Seq)
}

// IsZero reports whether p is the position before everything.
func (p Position) IsZero() bool { return p == Position{} }
