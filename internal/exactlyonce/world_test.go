package exactlyonce

import "slices"

// events are in the log of the database, numbered from 1. The first two are one
// transaction of the database, the third is another.
const events = 3

// endOf is the position that may be confirmed once everything up to done is
// published: the end of a transaction of the database.
func endOf(done int8) int8 {
	if done == 1 {
		return 0
	}
	return done
}

// nobody stands for no instance.
const nobody = -1

// phase is what an instance is about to do.
type phase int8

const (
	down      phase = iota
	standby         // take the slot
	holding         // claim the transactional id
	claimed         // read the checkpoint
	ready           // begin a transaction, or confirm
	wrote           // write the checkpoint of the open transaction
	marked          // ask for the commit
	ending          // wait for the answer
	unsettled       // claim the transactional id and go on from memory: a mistake
)

// instance is one process.
type instance struct {
	phase phase
	epoch int8 // of its producer
	txn   int8 // its open transaction
	done  int8 // events that are committed, as far as it knows
	to    int8 // events up to the end of the open transaction
	bad   bool // it knows that event 2 is refused
}

// answer is what became of the request for a commit.
type answer int8

const (
	none answer = iota
	asked
	committed
	fenced
	silence // the client gave up
)

// request is an EndTxn on its way, which may outlive who sent it.
type request struct {
	answer answer
	epoch  int8
	txn    int8
	stale  bool // the instance that asked is gone
}

// coordinator is the state of the transactional id.
type coordinator int8

const (
	empty coordinator = iota
	ongoing
	prepareCommit
	prepareAbort
)

// outcome is what became of a transaction.
type outcome int8

const (
	open outcome = iota
	commit
	abort
)

// mark is a checkpoint in its partition, or what another pipeline has written
// there.
type mark struct {
	done    int8 // events
	epoch   int8 // of the producer
	foreign bool
	outcome outcome
	stable  bool // the marker is written
}

const mostMarks = 6

// world is a state of everything. It is comparable, so that the search knows
// which it has been in, and has no more history than matters, so that they are
// few.
type world struct {
	state   coordinator
	epoch   int8
	current int8 // names the transaction of state
	// written are the records of the transaction of state: bit e for event e,
	// bit e+8 for its dead letter.
	written   uint16
	ended     outcome // of the transaction of state
	published int8    // events in committed transactions, all in order
	wrong     bool    // a consumer would read something else
	dataDone  bool    // the marker of the transaction of state is in the topic
	marks     [mostMarks]mark
	n         int8 // marks
	meddled   bool // another pipeline has written in marks

	holder    int8 // of the slot
	confirmed int8

	instances [2]instance
	requests  [2]request
	faults    int8 // that may still happen
}

func first(faults int8) world {
	w := world{holder: nobody, faults: faults, n: 1}
	w.marks[0] = mark{outcome: commit, stable: true}
	w.instances[0].phase, w.instances[1].phase = standby, standby
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

// checkpoint is the last one committed before the offset.
func (w *world) checkpoint(before int8) (last mark) {
	for _, k := range w.marks[:before] {
		if !k.foreign && k.outcome == commit {
			last = k
		}
	}
	return last
}

func (w *world) append(k mark) {
	w.marks[w.n] = k
	w.n++
}

// end decides about the current transaction.
func (w *world) end(o outcome, refused bool) {
	w.ended, w.state = o, prepareCommit
	if o == abort {
		w.state = prepareAbort
	} else {
		for e := int8(1); e <= events; e++ {
			live, dead := w.written>>e&1 == 1, w.written>>(e+8)&1 == 1
			if !live && !dead {
				continue
			}
			w.wrong = w.wrong || e != w.published+1 || dead != (refused && e == 2)
			w.published = e
		}
	}
	w.written = 0
	for i := range w.n {
		if k := &w.marks[i]; !k.foreign && k.outcome == open {
			k.outcome = o
		}
	}
}

// marked reports whether the current transaction's marker is in the checkpoints.
func (w *world) marked() bool {
	for _, k := range w.marks[:w.n] {
		if !k.foreign && !k.stable {
			return false
		}
	}
	return true
}

// forget drops history that nobody can see, and renumbers epochs.
func (w *world) forget() {
	kept := w.marks
	w.marks = [mostMarks]mark{}
	n := w.n
	w.n = 0
	stable := true
	for i := range n {
		k := kept[i]
		later := false
		for _, l := range kept[i+1 : n] {
			later = later || stable && !l.foreign && l.stable && l.outcome == commit
			if !l.stable {
				break
			}
		}
		stable = stable && k.stable
		if k.stable && (k.foreign || k.outcome == abort || later) {
			continue
		}
		w.append(k)
	}
	epochs := []*int8{&w.epoch}
	for i := range 2 {
		epochs = append(epochs, &w.instances[i].epoch, &w.requests[i].epoch)
	}
	for i := range w.n {
		epochs = append(epochs, &w.marks[i].epoch)
	}
	var used [128]bool
	for _, e := range epochs {
		used[*e] = true
	}
	for _, e := range epochs {
		rank := int8(0)
		for lower := range *e {
			if lower > 0 && used[lower] {
				rank++
			}
		}
		if *e > 0 {
			*e = rank + 1
		}
	}
}

// order puts the instances in an order, as which of them is which makes no
// difference. It reports whether they have changed places.
func (w *world) order() (swapped bool) {
	a, b := w.rank(0), w.rank(1)
	if slices.Compare(a[:], b[:]) <= 0 {
		return false
	}
	w.instances[0], w.instances[1] = w.instances[1], w.instances[0]
	w.requests[0], w.requests[1] = w.requests[1], w.requests[0]
	if w.holder != nobody {
		w.holder = 1 - w.holder
	}
	return true
}

// rank is all that a world has of an instance.
func (w *world) rank(i int8) [11]int8 {
	in, q := &w.instances[i], &w.requests[i]
	flag := func(b bool) int8 {
		if b {
			return 1
		}
		return 0
	}
	return [...]int8{flag(w.holder == i), int8(in.phase), in.epoch, in.txn, in.done, in.to, flag(in.bad),
		int8(q.answer), q.epoch, q.txn, flag(q.stale)}
}

// unused names a new transaction.
func (w *world) unused() int8 {
	for n := int8(1); ; n++ {
		if n != w.current && n != w.instances[0].txn && n != w.instances[1].txn && n != w.requests[0].txn && n != w.requests[1].txn {
			return n
		}
	}
}
