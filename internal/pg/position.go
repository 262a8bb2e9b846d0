package pg

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/jackc/pglogrepl"
)

// LSN is a byte position in the write-ahead log, printed as X/X.
type LSN = pglogrepl.LSN

// ParseLSN reads an LSN in printed form.
func ParseLSN(text string) (LSN, error) { return pglogrepl.ParseLSN(text) }

// LSNText is LSN.String's result, or "" for the position 0, none.
func LSNText(lsn LSN) string {
	if lsn == 0 {
		return ""
	}
	return lsn.String()
}

// longestLSN is the most bytes the text of an LSN has.
const longestLSN = 8 + 1 + 8

// AppendLSN appends LSN.String's result, in a quarter of the time.
func AppendLSN(b []byte, lsn LSN) []byte {
	text := slices.Grow(b, longestLSN)
	text = strconv.AppendUint(text, uint64(lsn>>32), 16)
	text = append(text, '/')
	text = strconv.AppendUint(text, uint64(uint32(lsn)), 16)
	for i := len(b); i < len(text); i++ {
		if text[i] >= 'a' {
			text[i] -= 'a' - 'A'
		}
	}
	return text
}

// Position identifies one row change for good: the LSN of the transaction's
// commit record and the index among the transaction's changes, from 0, counted
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
