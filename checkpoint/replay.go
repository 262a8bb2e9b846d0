package checkpoint

import (
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Past is everything read of a log before a new stream.
type Past struct {
	Slot  pg.LSN // the confirmed position
	Start pg.LSN // of the stream
	Known pg.LSN // everything ending at or before was read
	// Since is the last known transaction of ours. It also proves everything before:
	// two logs with the same record are the same up to there.
	Since Landmark
	Cut   Cut      // the last event read of a transaction behind Known; zero: none
	Skip  Landmark // a transaction an operator ordered to pass over; zero: none
}

// Replay judges whether a stream is of the log read before. The server repeats the log
// behind the stream's start, and the transactions must be the same. Otherwise the log is
// another, and its new events have positions that look known.
//
// A Replay is told of the stream in order: Transaction for each event of ours,
// Reached for each position up to which the server has sent everything. Both
// return an error of class failure.Loss once the log is found to be another.
// Not safe for concurrent use.
type Replay struct {
	past   Past
	wanted []Landmark // not seen yet, in order: Since, then Cut
	passed pg.LSN     // commit of the last fitting transaction
}

// NewReplay returns the judge of a stream.
func NewReplay(past Past) *Replay {
	r := &Replay{past: past}
	for _, l := range []Landmark{past.Since, past.Cut.Landmark} {
		if l.XID != 0 && l.Commit >= past.Start {
			r.wanted = append(r.wanted, l)
		}
	}
	return r
}

// Transaction notes an event of transaction tx.
func (r *Replay) Transaction(tx Landmark) error {
	if tx.Commit == r.passed {
		return nil
	}
	switch {
	case tx.Commit < r.past.Since.Commit: // proven by Since
	case len(r.wanted) > 0 && r.wanted[0].Same(tx):
		r.wanted = r.wanted[1:]
	case len(r.wanted) > 0 && tx.Commit >= r.wanted[0].Commit:
		return r.other("it has transaction %s, and not transaction %s", tx, r.wanted[0])
	case len(r.wanted) > 0 || tx.Commit < r.past.Known:
		return r.other("it has transaction %s, where none with an event was", tx)
	}
	r.passed = tx.Commit
	return nil
}

// Other notes a change of transaction tx that is no event, but may have been taken for an
// event before.
func (r *Replay) Other(tx Landmark) {
	if len(r.wanted) > 0 && r.wanted[0].Same(tx) {
		r.wanted = r.wanted[1:]
		r.passed = tx.Commit
	}
}

// Reached notes that the server has sent everything up to pos. done reports
// that the log is the one read before, and that the rest is new.
func (r *Replay) Reached(pos pg.LSN) (done bool, err error) {
	if len(r.wanted) == 0 {
		return pos >= r.past.Known, nil
	}
	if next := r.wanted[0]; pos > next.Commit {
		return false, r.other("it has no transaction %s", next)
	}
	return false, nil
}

func (r *Replay) other(format string, args ...any) error {
	return diverging(failure.Lossf(acceptGap,
		"the server's log is not the one that was read up to %s: %w. A disk or a snapshot of one was put back, or a standby that was behind took over; events that this log has between %s and %s may not be published",
		r.past.Known, fmt.Errorf(format, args...), r.past.Slot, max(r.past.Known, r.end())))
}

// end is how far the log was read, a transaction read in part included.
func (r *Replay) end() pg.LSN {
	if n := len(r.wanted); n > 0 {
		return r.wanted[n-1].Commit
	}
	return 0
}
