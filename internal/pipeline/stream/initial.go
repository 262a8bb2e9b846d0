package stream

import (
	"sync"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// initial knows how far the first start's snapshot was read, and how far published.
// Like the intake, it outlives sessions. Safe for concurrent use: the intake adds, the
// deliverer tells what is dealt with.
type initial struct {
	mu    sync.Mutex
	rows  []rowPlace          // read, and not dealt with; in order
	dealt *checkpoint.Initial // up to which everything is dealt with; nil: no snapshot
}

// rowPlace is where a row was read.
type rowPlace struct {
	seq   uint32
	table int // index in Initial.Tables
	catalog.RowPlace
}

// placeMemory is about the memory of a place.
const placeMemory = 64

// resume returns how far the snapshot was read; in an earlier session of the process, or
// else as of the checkpoint.
func (i *initial) resume(from *checkpoint.Initial) *checkpoint.Initial {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.dealt == nil {
		i.dealt = from.Clone()
	}
	return i.upTo(len(i.rows))
}

// set replaces all, once nothing is in flight.
func (i *initial) set(to *checkpoint.Initial) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rows, i.dealt = nil, to.Clone()
}

// read notes a row, before its event enters the queue.
func (i *initial) read(p rowPlace) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rows = append(i.rows, p)
}

// unread takes the last row back, which had no room in the queue.
func (i *initial) unread() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rows = i.rows[:len(i.rows)-1]
}

// published is how far everything is dealt with; nil: there is no snapshot.
func (i *initial) published() *checkpoint.Initial {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.dealt == nil {
		return nil
	}
	return i.dealt.Clone()
}

// ahead reports whether more is dealt with than the checkpoint knows.
func (i *initial) ahead(cp *checkpoint.Checkpoint) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return cp.Snapshot && i.dealt != nil && (cp.Initial == nil || i.dealt.Rows > cp.Initial.Rows)
}

// after is published with the items dealt with, too; nil without a row of the snapshot.
func (i *initial) after(batch []item) *checkpoint.Initial {
	seq, ok := lastRow(batch)
	if !ok {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.upTo(i.count(seq))
}

// done notes items as dealt with.
func (i *initial) done(batch []item) {
	seq, ok := lastRow(batch)
	if !ok {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	n := i.count(seq)
	i.dealt = i.upTo(n)
	if i.rows = i.rows[n:]; len(i.rows) == 0 {
		i.rows = nil // not to keep the memory of all the rows before
	}
}

// upTo is the state with n more rows dealt with. The caller holds mu.
func (i *initial) upTo(n int) *checkpoint.Initial {
	state := i.dealt.Clone()
	for _, p := range i.rows[:n] {
		state.Reach(p.seq+1, p.table, p.RowPlace)
	}
	return state
}

// count is how many rows there are up to the number. The caller holds mu.
func (i *initial) count(seq uint32) (n int) {
	for n < len(i.rows) && i.rows[n].seq <= seq {
		n++
	}
	return n
}

// lastRow is the number of the last item, if that is a row of a snapshot. A batch has no
// other items beside: the stream begins once all rows are dealt with.
func lastRow(batch []item) (seq uint32, ok bool) {
	if len(batch) == 0 {
		return 0, false
	}
	ev := batch[len(batch)-1].Event
	return ev.Position.Seq, ofSnapshot(ev)
}

// ofSnapshot reports whether an event is a row of a snapshot: without a transaction, and
// with a time, which a message of no transaction lacks.
func ofSnapshot(ev *transform.Event) bool { return ev.XID == 0 && !ev.CommitTime.IsZero() }
