package checkpoint

import (
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Ticket names an open or sealed transaction of a Tracker. The zero Ticket
// names none.
type Ticket uint64

// Tracker turns acks into a position: the last transaction end with every
// record of its own and of all earlier transactions done.
//
// A Tracker is told of the stream in order: Add for each record, Seal for each
// transaction end, Keepalive where the server had nothing for us. A
// non-transactional message counts as a separate transaction. Done comes in any
// order. Not safe for concurrent use; see Locked.
//
// If calls contradict each other (more done than added, an end before the
// last), no position is certain any more. The tracker then stays where it is
// for good, and every later Seal and Keepalive returns the reason. So a caller
// acking on a single goroutine and reading on another notices without checking
// each ack.
type Tracker struct {
	// ring holds the transactions [first, next) at their ticket modulo its
	// length, a power of two. An entry per transaction is all the memory there
	// is.
	ring  []transaction
	first Ticket // the oldest with something unacked
	next  Ticket // the next to be opened
	open  bool   // next-1 is open: without an end yet

	position pg.LSN
	landmark Landmark // the last transaction with records passed by position
	last     pg.LSN   // the highest end or idle position heard of
	inFlight int
	err      error // the first contradiction
}

// transaction is the tracker's state of a transaction.
type transaction struct {
	end      pg.LSN // once sealed
	landmark Landmark
	unacked  int
}

const initialRing = 64

// NewTracker returns a tracker with everything up to start done.
func NewTracker(start pg.LSN) *Tracker {
	return &Tracker{
		ring:     make([]transaction, initialRing),
		first:    1,
		next:     1,
		position: start,
		last:     start,
	}
}

// Add notes another record in flight in the open transaction, opens one if none
// is, and returns its ticket.
func (t *Tracker) Add() Ticket {
	if !t.open {
		t.push()
		t.open = true
	}
	t.at(t.next-1).unacked++
	t.inFlight++
	return t.next - 1
}

// Seal notes the open transaction's end, and the landmark to recognise the
// transaction by. end may be confirmed once everything in the transaction and
// before it is done. A transaction may be empty: the records did not concern
// us. An end below an earlier end is an error.
func (t *Tracker) Seal(end pg.LSN, landmark Landmark) error {
	if t.err != nil {
		return t.err
	}
	if end < t.last {
		t.contradict("transaction end %s comes after position %s", end, t.last)
		return t.err
	}
	t.last = end

	if !t.open {
		t.raise(end)
		return nil
	}
	sealed := t.at(t.next - 1)
	sealed.end, sealed.landmark = end, landmark
	t.open = false
	t.retire()
	return nil
}

// Keepalive notes that nothing of ours is left up to pos: pos may be confirmed once
// everything added so far is done. It is ignored while a transaction is open. So is a
// position below the last: the server repeats its own position in keepalives, and from
// within a transaction sends the position before.
func (t *Tracker) Keepalive(pos pg.LSN) error {
	if t.err != nil || t.open || pos <= t.last {
		return t.err
	}
	t.last = pos
	t.raise(pos)
	return nil
}

// Done notes n records of transaction k as acked. A ticket that is not in
// flight, or more records than are in flight, breaks the tracker.
func (t *Tracker) Done(k Ticket, n int) {
	if n == 0 {
		return
	}
	unacked := 0
	if t.first <= k && k < t.next {
		unacked = t.at(k).unacked
	}
	if n < 0 || n > unacked {
		t.contradict("%d records of transaction ticket %d reported done, %d in flight", n, k, unacked)
		return
	}
	t.at(k).unacked -= n
	t.inFlight -= n
	if k == t.first {
		t.retire()
	}
}

// Position is the highest LSN safe to confirm. It never goes back; it is the
// start position (or zero) until something is done.
func (t *Tracker) Position() pg.LSN { return t.position }

// Landmark is the last transaction with records ending at or before Position,
// as given to Seal; zero if there was none since the start.
func (t *Tracker) Landmark() Landmark { return t.landmark }

// After is what Position and Landmark would be if everything before transaction
// k were done, and n more records of k. whole reports whether k would be, too.
func (t *Tracker) After(k Ticket, n int) (position pg.LSN, landmark Landmark, whole bool) {
	position, landmark = t.position, t.landmark
	sealed := t.next
	if t.open {
		sealed--
	}
	for j := t.first; j < sealed && j <= k && (j < k || t.at(j).unacked == n); j++ {
		position, whole = t.at(j).end, j == k
		if l := t.at(j).landmark; !l.IsZero() {
			landmark = l
		}
	}
	return position, landmark, whole
}

// Read is the highest end or idle position told. Everything up to it is done if
// Position is as high.
func (t *Tracker) Read() pg.LSN { return t.last }

// InFlight is the number of records added and not done.
func (t *Tracker) InFlight() int { return t.inFlight }

// raise moves the end of the last sealed transaction up to a position that
// brought no record: it may be confirmed exactly when the transaction and all
// before are done. So any number of empty transactions and keepalives costs no
// memory.
func (t *Tracker) raise(end pg.LSN) {
	if t.first == t.next {
		t.position = end
		return
	}
	t.at(t.next - 1).end = end
}

// retire moves the position over the sealed and done transactions at the front.
func (t *Tracker) retire() {
	if t.err != nil {
		return
	}
	sealed := t.next
	if t.open {
		sealed--
	}
	for t.first < sealed && t.at(t.first).unacked == 0 {
		done := t.at(t.first)
		t.position = done.end
		if !done.landmark.IsZero() {
			t.landmark = done.landmark
		}
		t.first++
	}
}

func (t *Tracker) at(k Ticket) *transaction {
	return &t.ring[uint64(k)&uint64(len(t.ring)-1)]
}

// push makes room for the transaction next and opens it.
func (t *Tracker) push() {
	if int(t.next-t.first) == len(t.ring) {
		old := *t
		t.ring = make([]transaction, 2*len(old.ring))
		for k := t.first; k < t.next; k++ {
			*t.at(k) = *old.at(k)
		}
	}
	*t.at(t.next) = transaction{}
	t.next++
}

// contradict breaks the tracker; the first reason stays.
func (t *Tracker) contradict(format string, args ...any) {
	if t.err != nil {
		return
	}
	t.err = failure.Lossf("restart: it resumes from the last checkpoint; and please report this, it is a bug",
		"the record of acks does not add up, so nothing after %s is confirmed any more: %w", t.position, fmt.Errorf(format, args...))
}
