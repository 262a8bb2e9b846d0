package exactlyonce

import (
	"math/bits"
	"unsafe"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/phase"
)

// events is the number of events in the log of the database, numbered from 1. The
// first two are a single transaction of the database, the third is another.
const events = 3

// endOf is the position that may be confirmed once everything up to done is
// published: the end of a transaction of the database.
func endOf(done int8) int8 {
	if done == 1 {
		return 0
	}
	return done
}

// partition is where an event belongs, or its dead letter.
func partition(event int8) parts {
	if event == 2 {
		return second
	}
	return first
}

// parts are partitions, with their own markers of a transaction's end.
type parts uint8

const (
	first parts = 1 << iota
	second
	checkpoints
)

// set is a set of events, bit e for event e. Among a transaction's records, bit e+dead
// is a dead letter, or the record of a parked event, and bit end(e) ends that.
type set uint8

const dead = 4

// live are the bits of events.
const live set = 1<<dead - 2

// end is the bit of the end of a parked event, 1 or 3.
func end(event int8) int8 { return event / 3 * 4 }

// ends are the bits of the ends of parked events.
func (s set) ends() (bits set) {
	for _, e := range [...]int8{1, 3} {
		if s.has(e) {
			bits |= 1 << end(e)
		}
	}
	return bits
}

func (s set) has(event int8) bool { return s>>event&1 == 1 }

// upTo returns the events of the set up to the given event.
func (s set) upTo(event int8) set { return s & (2<<event - 1) }

// after returns the events of the set after the given event.
func (s set) after(event int8) set { return s &^ (2<<event - 1) }

// in returns the events of the partitions.
func (s set) in(some parts) (part set) {
	for e := int8(1); e <= events; e++ {
		if partition(e)&some != 0 {
			part |= s & (1<<e | 1<<(e+dead))
		}
	}
	return part
}

// plain counts dead letters as events.
func (s set) plain() set { return (s | s>>dead) & (1<<dead - 1) }

// nobody stands for no instance.
const nobody = -1

// doing is an instance's next step in its own transaction.
type doing int8

const (
	idle   doing = iota // begin a transaction
	wrote               // write the checkpoint
	marked              // ask for the commit
	ending              // wait for the answer
)

// instance is a single process.
type instance struct {
	life  phase.Life // the zero value: the process is down
	doing doing
	epoch int8 // of the producer
	txn   int8 // the open transaction
	done  int8 // events committed, as far as the instance knows
	to    int8 // events up to the end of the open transaction
	bad   bool // event 2 is known to be refused
	// visible are the events after done already seen by consumers, of transactions
	// ended by halves.
	visible set
	// parked are the events in the quarantine, as far as the instance knows, and settled
	// those after the open transaction.
	parked, settled set
	// unended are settled by the last checkpoint, while the quarantine has no ends of them,
	// and named those of the checkpoint of the open transaction.
	unended, named set
	// snapshot is 1 more than the events in the first snapshot of the slot that the
	// instance has made anew; 0: none.
	snapshot int8
}

// begun is a process standing by.
var begun = phase.Life{Once: true}

// answer is the outcome of the request for a commit.
type answer int8

const (
	none answer = iota
	asked
	committed
	fenced
	silence // the client gave up
)

// request is an EndTxn on the way, and may outlive the sender.
type request struct {
	answer answer
	epoch  int8
	txn    int8
	stale  bool // the sender has crashed or given up
}

// coordinator is the state of the transactional id.
type coordinator int8

const (
	empty coordinator = iota
	ongoing
	prepareCommit
	prepareAbort
)

// outcome is the outcome of a transaction.
type outcome int8

const (
	open outcome = iota
	commit
	abort
)

// mark is a checkpoint in its partition, or another pipeline's record there.
type mark struct {
	done    int8 // events
	epoch   int8 // of the producer
	foreign bool
	outcome outcome
	stable  bool // the marker is written
	torn    bool // a marker of an abort came after the commit's marker
	written set  // events in the transaction
	settled set  // parked events that count as settled, though they have no ends
	doubt   set  // events of transactions maybe ended by halves
}

// counts reports whether an instance may resume from the checkpoint.
func (k *mark) counts() bool { return !k.foreign && k.outcome == commit && !k.torn }

const mostMarks = 10

// world is a state of everything. world has no more history than matters, so
// the states are few, and each field is a single byte, so the bytes are the
// key.
type world struct {
	state   coordinator
	epoch   int8
	current int8 // names the transaction of state
	owner   int8 // the epoch that began the transaction
	// written are the records of the transaction of state, with the partitions
	// enrolled; told have the marker of the end. committed have the marker of a
	// commit forgotten by the coordinator.
	written                   set
	enrolled, told, committed parts
	ended                     outcome // of the transaction of state
	known                     bool    // the commit was answered
	forgotten                 bool    // a commit was
	published                 set     // events in committed transactions
	parked                    set     // events in the quarantine, by committed transactions
	wrong                     bool    // a consumer would read something else
	meddled                   bool    // another pipeline has written in marks

	holder    int8 // of the slot
	confirmed int8
	earlier   set // positions before confirmed, maybe the last on disk

	rows  int8 // committed in the database
	since int8 // events before the log of the slot
	gone  bool // the slot
	lost  bool // a loss is noted in the checkpoint

	instances [2]instance
	requests  [2]request

	n     int8 // marks
	marks [mostMarks]mark
}

// key has all of w.
func (w *world) key() []byte {
	size := unsafe.Offsetof(w.marks) + uintptr(w.n)*unsafe.Sizeof(mark{})
	return unsafe.Slice((*byte)(unsafe.Pointer(w)), size)
}

// of returns the world with the key.
func of(key []byte) (w world) {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&w)), unsafe.Sizeof(w)), key)
	return w
}

func start() world {
	w := world{holder: nobody, n: 1, rows: events}
	w.marks[0] = mark{outcome: commit, stable: true}
	w.instances[0].life, w.instances[1].life = begun, begun
	return w
}

// stable is the last stable offset of the checkpoints.
func (w *world) stable() int8 {
	for i := range w.n {
		if !w.marks[i].stable {
			return i
		}
	}
	return w.n
}

// checkpoint is the last checkpoint before the offset to count, with the events in
// doubt behind.
func (m *model) checkpoint(w *world, before int8) (last mark) {
	for _, k := range w.marks[:before] {
		switch {
		case k.counts() || m.mistake == tornCheckpointCounts && k.torn:
			last = k
		case !k.foreign:
			last.doubt |= k.written
		}
	}
	if m.mistake == slotNotAsked {
		return last
	}
	for _, k := range w.marks[:before] {
		if k.torn && w.confirms(k, last) {
			k.doubt |= last.doubt
			k.settled |= last.settled
			last = k
		}
	}
	return last
}

// confirms reports whether the torn checkpoint counts, and not the last before, as the
// slot is confirmed up to there.
func (w *world) confirms(torn, last mark) bool {
	at := func(k mark) checkpoint.Checkpoint { return checkpoint.Checkpoint{LSN: pg.LSN(endOf(k.done))} }
	found := at(last)
	found.Doubtful = []checkpoint.Doubtful{{Saved: at(torn), Committed: true}}
	return found.Confirmed(pg.LSN(w.confirmed)).LSN != found.LSN
}

func (w *world) append(k mark) {
	w.marks[w.n] = k
	w.n++
}

// end decides about the current transaction.
func (w *world) end(o outcome, m *model) {
	w.ended, w.state, w.told = o, prepareCommit, 0
	if o == abort {
		w.state = prepareAbort
	} else {
		w.publish(m)
	}
	for i := range w.n {
		if k := &w.marks[i]; !k.foreign && k.outcome == open {
			k.outcome = o
			w.lost = w.lost && o == abort // a former holder's checkpoint knows of no loss
		}
	}
}

// publish has consumers read the transaction's records, but for the partitions with a
// forgotten commit, read before.
func (w *world) publish(m *model) {
	fresh := w.written &^ m.in(w.written, w.committed)
	for e := int8(1); e <= events; e++ {
		live, letter := fresh.has(e), fresh.has(e+dead)
		if !live && !letter {
			continue
		}
		if m.parks && letter {
			w.wrong = w.wrong || w.published.has(e) || w.parked.has(e) || w.dealt().prefix() < e-1
			w.parked |= 1 << e
			continue
		}
		later := w.published.after(e).in(partition(e))
		w.wrong = w.wrong || w.published.has(e) || later != 0 || w.dealt().prefix() < e-1 || letter != (m.refused && e == 2)
		w.published |= 1 << e
	}
	w.parked &^= m.ended(fresh)
}

// ended are the parked events with ends among the records.
func (m *model) ended(records set) (ended set) {
	if m.parks {
		for _, e := range [...]int8{1, 3} {
			if records.has(end(e)) {
				ended |= 1 << e
			}
		}
	}
	return ended
}

// dealt are the events published or parked.
func (w *world) dealt() set { return w.published | w.parked }

// prefix is how many events, from the first on, are in the set.
func (s set) prefix() (n int8) {
	for s.has(n + 1) {
		n++
	}
	return n
}

// tell writes the marker of the transaction's end in a partition. An abort's marker
// behind a commit's is taken for the same transaction's; for transactions sharing an
// epoch that may be wrong.
func (m *model) tell(w *world, p parts) {
	w.told |= p
	if p != checkpoints {
		return
	}
	var last *mark
	for i := range w.n {
		if k := &w.marks[i]; !k.foreign {
			k.stable, last = true, k
		}
	}
	same := m.shared || w.committed&checkpoints != 0
	if w.ended == abort && last.outcome == commit && same && last.epoch == w.owner && w.owner < w.epoch && last.written != 0 {
		last.torn = true
	}
}

// complete ends the current transaction.
func (w *world) complete() {
	w.state, w.current, w.owner, w.ended, w.known = empty, 0, 0, open, false
	w.written, w.enrolled, w.told, w.committed = 0, 0, 0, 0
}

// in returns the records of the partitions. The quarantine is in the second.
func (m *model) in(records set, some parts) set {
	if !m.parks {
		return records.in(some)
	}
	part := (records & live).in(some)
	if some&second != 0 {
		part |= records &^ live
	}
	return part
}

// lose has the coordinator's successor take the transaction for open.
func (m *model) lose(w *world) {
	w.state, w.ended, w.forgotten = ongoing, open, true
	w.committed |= w.told
	w.told = 0
	unread := m.in(w.written, ^w.committed)
	if m.parks {
		w.published &^= unread & live
		w.parked = w.parked&^(unread>>dead&live) | m.ended(unread)
	} else {
		w.published &^= unread.plain()
	}
	for i := range w.n {
		if k := &w.marks[i]; !k.foreign && !k.stable {
			k.outcome = open
		}
	}
}

// forget drops everything without an effect on later steps.
func (m *model) forget(w *world) {
	m.forgetMarks(w)
	m.forgetTransactions(w)
	w.rankEpochs()
}

// forgetMarks drops checkpoints nobody can see. Where checkpoints may be torn, the last
// counting checkpoint may cease to count, and a torn checkpoint may count yet: if the
// slot is beyond the others.
func (m *model) forgetMarks(w *world) {
	enough := 1
	if m.halves || m.shared {
		enough = 2
	}
	n, kept := w.n, int8(0)
	for i := range n {
		k := &w.marks[i]
		later := 0 // checkpoints that count
		for j := i + 1; j < n && w.marks[j].stable; j++ {
			if w.marks[j].counts() && (!k.torn || w.marks[j].done >= k.done) {
				later++
			}
		}
		if k.stable && (k.foreign || later >= enough || k.outcome == abort && k.written&w.published == 0) {
			continue
		}
		w.marks[kept] = *k
		kept++
	}
	for i := kept; i < n; i++ {
		w.marks[i] = mark{}
	}
	w.n = kept
}

// The names of transactions. A transaction is only ever compared with the present
// transaction, and a former transaction never becomes present again. So two names are
// enough, and a third for the step beginning a transaction.
const (
	present int8 = iota + 1
	former
	fresh
)

// forgetTransactions names the transactions anew, and drops what has no effect
// any more: markers nobody sees, and requests of the past.
func (m *model) forgetTransactions(w *world) {
	if !m.partsSeen(w) {
		w.told &= checkpoints
	}
	for i := range w.instances {
		in, q := &w.instances[i], &w.requests[i]
		in.txn, q.txn = w.renamed(in.txn), w.renamed(q.txn)
		// Epochs only grow. So nobody gets an answer to such a request, and the request ends nothing.
		if q.stale && (q.epoch != w.epoch || !m.shared && q.txn != present) {
			*q = request{}
		}
	}
	w.current = w.renamed(w.current)
}

func (w *world) renamed(txn int8) int8 {
	switch txn {
	case 0:
		return 0
	case w.current:
		return present
	}
	return former
}

// partsSeen reports whether the markers in the events' own partitions make a difference: only
// while the commit may be forgotten. Otherwise they are written together with the
// transaction's completion: the completion waits for them, no step between reads them, and no
// step can keep them from being written.
func (m *model) partsSeen(w *world) bool {
	return m.halves && w.state == prepareCommit && !w.known
}

// rankEpochs gives the epochs the numbers from 1 on: only their order counts.
func (w *world) rankEpochs() {
	used := 1<<w.epoch | 1<<w.owner
	for i := range w.instances {
		used |= 1<<w.instances[i].epoch | 1<<w.requests[i].epoch
	}
	for i := range w.n {
		used |= 1 << w.marks[i].epoch
	}
	used &^= 1 // there is no epoch 0
	rank := func(e int8) int8 { return int8(bits.OnesCount(uint(used & (2<<e - 1)))) }
	w.epoch, w.owner = rank(w.epoch), rank(w.owner)
	for i := range w.instances {
		w.instances[i].epoch, w.requests[i].epoch = rank(w.instances[i].epoch), rank(w.requests[i].epoch)
	}
	for i := range w.n {
		w.marks[i].epoch = rank(w.marks[i].epoch)
	}
}

// order puts the instances in an order, as their numbers make no difference. order
// reports whether they have changed places.
func (w *world) order() (swapped bool) {
	if w.rank(0) <= w.rank(1) {
		return false
	}
	w.instances[0], w.instances[1] = w.instances[1], w.instances[0]
	w.requests[0], w.requests[1] = w.requests[1], w.requests[0]
	if w.holder != nobody {
		w.holder = 1 - w.holder
	}
	return true
}

// rank is everything a world has of an instance, in a bit or five each, done and to together.
func (w *world) rank(i int8) (r uint64) {
	in, q := &w.instances[i], &w.requests[i]
	for _, flag := range [...]bool{w.holder == i, in.life.Once, in.life.Owns, in.bad, q.stale,
		in.parked.has(1), in.parked.has(3), in.settled.has(1), in.settled.has(3),
		in.unended.has(1), in.unended.has(3), in.named.has(1), in.named.has(3)} {
		r <<= 1
		if flag {
			r++
		}
	}
	for _, field := range [...]int8{int8(in.life.Phase), int8(in.doing), in.epoch, in.txn, in.done<<2 | in.to,
		int8(q.answer), q.epoch, q.txn, int8(in.visible), in.snapshot} {
		r = r<<5 | uint64(field)
	}
	return r
}
