package checkpoint

import (
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Reading is how far a process has read the log. So an event sent repeatedly is taken in
// once.
//
// A Reading is told of a stream in the stream's order: Row and then Took for
// each event of a transaction, Alone and TookAlone for a message outside
// transactions, Commit for each end, Idle for a position without anything of
// ours up to it. Before each stream, Resume tells where it begins. The zero
// Reading has read nothing.
//
// A Reading is a value: a copy goes on by itself. Reading does no I/O and knows
// no clock. Not safe for concurrent use.
type Reading struct {
	end      pg.LSN   // everything ending at or before was read
	landmark Landmark // the last of these transactions with events

	cut      Cut    // the last event read of a transaction behind end; zero: none
	recalled bool   // cut is the checkpoint's, and the event has not come again yet
	extent   Extent // of the transaction

	replay    Replay // judges the stream while replaying
	replaying bool   // until the stream shows something new

	skip Landmark // the transaction passed over; zero: none
}

// Extent is how much of a transaction is published at once.
type Extent int8

// The extents of a transaction.
const (
	Whole   Extent = iota // as a whole, or without regard to transactions
	InParts               // too large, or published before in part
	TooBig                // nothing: refused at the end
)

// Transaction is an ended transaction. Without an event of ours the Landmark is
// zero.
type Transaction struct {
	Landmark
	Extent Extent
}

// Resume prepares for a stream. past is from checkpoint and slot; Resume adds the
// process's own reading.
func (r *Reading) Resume(past Past) error {
	if r.cut.Commit < past.Known { // another instance has read the rest
		r.close()
	}
	r.end = max(r.end, past.Known)
	if !past.Cut.IsZero() && r.cut.IsZero() && past.Cut.Commit >= r.end { // otherwise our process has read further
		r.cut, r.recalled, r.extent = past.Cut, true, InParts
	}
	if r.landmark.Commit < past.Since.Commit {
		r.landmark = past.Since
	}
	past.Known, past.Since, past.Cut = r.end, r.landmark, r.cut
	r.replay, r.replaying, r.skip = *NewReplay(past), true, past.Skip
	_, err := r.reached(past.Start) // there may be nothing to repeat
	return err
}

// Row judges an event of a transaction: again tells that it was read before.
func (r *Reading) Row(row *pg.Row) (again bool, err error) {
	if r.replaying {
		if err := r.replay.Transaction(LandmarkOf(row)); err != nil {
			return false, err
		}
	}
	if r.recalled {
		if err := r.found(row.Position); err != nil {
			return false, err
		}
	}
	return r.Has(row.Position), nil
}

// Took notes that the event of the row, a new one, is taken in.
func (r *Reading) Took(row *pg.Row) {
	if row.Position.CommitLSN != r.cut.Commit {
		r.extent = Whole
	}
	r.cut.Landmark, r.cut.Seq = LandmarkOf(row), row.Position.Seq
}

// Passed notes a row that is no event, but may have been taken for an event before.
func (r *Reading) Passed(row *pg.Row) {
	if r.replaying {
		r.replay.Other(LandmarkOf(row))
	}
	if row.Position == r.cut.Position() {
		r.recalled = false
	}
}

// Has reports whether the change at p was read on an earlier connection.
func (r *Reading) Has(p pg.Position) bool {
	return r.replaying && p.CommitLSN < r.end || p.CommitLSN == r.cut.Commit && p.Seq <= r.cut.Seq
}

// Alone judges a message of no transaction. The server sends such a message at its place
// in the log, between transactions. The position is the end of the record, so a stream
// from there on begins with the next record: perhaps a commit, with rows that therefore
// do not count as read.
func (r *Reading) Alone(pos pg.LSN) (again bool, err error) {
	replaying := r.replaying
	again, err = r.reached(pos)
	return again || replaying && pos <= r.end, err
}

// TookAlone notes that the message outside transactions at pos, a new one, is
// taken in.
func (r *Reading) TookAlone(pos pg.LSN) { r.end = pos }

// Commit notes the end of a transaction: again tells that it was read before.
func (r *Reading) Commit(end pg.LSN) (tx Transaction, again bool, err error) {
	if again, err := r.reached(end); again || err != nil {
		return tx, again, err
	}
	if r.recalled {
		return tx, false, r.cutLost()
	}
	tx = Transaction{r.cut.Landmark, r.extent}
	if !tx.IsZero() {
		r.landmark = tx.Landmark
	}
	r.end = end
	r.close()
	return tx, false, nil
}

// Idle notes that nothing of ours is left up to pos: again tells that this was known.
func (r *Reading) Idle(pos pg.LSN) (again bool, err error) {
	if again, err := r.reached(pos); again || err != nil {
		return again, err
	}
	r.end = max(r.end, pos)
	return false, nil
}

// Publish sets the extent of the open transaction.
func (r *Reading) Publish(e Extent) { r.extent = e }

// Published is the extent of a transaction.
func (r *Reading) Published(commit pg.LSN) Extent {
	if commit != r.cut.Commit {
		return Whole
	}
	return r.extent
}

// Skips reports whether the row's transaction is passed over.
func (r *Reading) Skips(row *pg.Row) bool {
	return row.Position.CommitLSN == r.skip.Commit && r.skip.Same(LandmarkOf(row))
}

// End is the position up to which every ended transaction was read.
func (r *Reading) End() pg.LSN { return r.end }

// Furthest is how far the log was read, a cut transaction included.
func (r *Reading) Furthest() pg.LSN {
	if r.cut.IsZero() {
		return r.end
	}
	return max(r.end, r.cut.Commit+1) // the end is not known, but there is a record at the position
}

// Landmark is the last transaction with events read to the end.
func (r *Reading) Landmark() Landmark { return r.landmark }

// Cut is the last event read of a transaction not yet read to the end; zero:
// none.
func (r *Reading) Cut() Cut { return r.cut }

// Within reports whether a transaction was read in part.
func (r *Reading) Within() bool { return !r.cut.IsZero() && !r.recalled }

// Recognised reports whether the stream is known to be of the log read before.
func (r *Reading) Recognised() bool { return !r.replaying }

// reached reports whether the server, at position pos, still repeats the log
// read before. Everything up to pos has been sent.
func (r *Reading) reached(pos pg.LSN) (again bool, err error) {
	if !r.replaying {
		return false, nil
	}
	done, err := r.replay.Reached(pos)
	if err != nil || !done {
		return true, err
	}
	r.replaying = false
	return pos < r.end, nil
}

// found notes that the server has sent the event at p, perhaps the one at the
// checkpoint's cut.
func (r *Reading) found(p pg.Position) error {
	switch c := p.Compare(r.cut.Position()); {
	case c > 0:
		return r.cutLost()
	case c == 0:
		r.recalled = false
	}
	return nil
}

// close forgets the cut transaction.
func (r *Reading) close() { r.cut, r.recalled, r.extent = Cut{}, false, Whole }

// cutLost is the error of a transaction without its last published event: nobody knows
// where to go on.
func (r *Reading) cutLost() error {
	return failure.Lossf(catalog.AcceptGap, "transaction %s was published up to its change %d, and the server sends no event there now: publication or tables are not what they were",
		r.cut.Landmark, r.cut.Seq)
}
