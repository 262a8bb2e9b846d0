package exactlyonce

// model is a protocol, right or with a mistake, in one scenario.
type model struct {
	mistake mistake
	refused bool // brokers refuse event 2
	whole   bool // transactions of the database are not split
	halves  bool // a coordinator may forget a commit that a part of the partitions has
	shared  bool // transaction.version 1: all transactions of a claim have one epoch
}

// mistake is one that an implementation could make.
type mistake int

const (
	right mistake = iota
	commitRetriedAsSuccess
	timeoutTakenForAbort
	readToLastStableOffset
	confirmedBeforeCommit
	fencingAnsweredByFencing
	refusedRecordDropped
	readBeforeClaim
	resumedAtTransactionEnd
	checkpointBesideTransaction
	partBeforeRefused
	replayWritten
	endRepeated
	tornCheckpointCounts
	visibleWrittenAgain
	doubtForgotten
	slotNotAsked
	believedUnproved
)

func (m mistake) String() string {
	return [...]string{
		"right", "commit retried as success", "timeout taken for abort", "read to last stable offset",
		"confirmed before commit", "fencing answered by fencing", "refused record dropped",
		"read before claim", "resumed at transaction end", "checkpoint beside transaction", "part before refused",
		"replay written", "end repeated", "torn checkpoint counts", "visible written again", "doubt forgotten",
		"slot not asked", "believed unproved",
	}[m]
}

// step is a state that may follow.
type step struct {
	name  string
	of    int8 // the instance, or nobody
	fault bool
	// swapped: the instances have changed places in next.
	swapped bool
	next    world
}

// steps appends all that may happen next.
func (m *model) steps(w *world, all []step) []step {
	of := int8(nobody)
	take := func(name string, change func(*world), faults int8) {
		all = append(all, step{name: name, of: of, fault: faults > 0, next: *w})
		s := &all[len(all)-1]
		s.next.faults -= faults
		change(&s.next)
		s.next.forget(m.halves || m.shared)
		s.swapped = s.next.order()
	}
	add := func(name string, change func(*world)) { take(name, change, 0) }
	fault := func(name string, change func(*world)) {
		if w.faults > 0 {
			take(name, change, 1)
		}
	}
	m.broker(w, add, fault)
	m.postgres(w, fault)
	for of = range int8(2) {
		m.network(w, of, add, fault)
		m.instance(w, of, add, fault)
	}
	return all
}

type adder func(name string, change func(*world))

// instance are the steps of one process.
func (m *model) instance(w *world, i int8, add, fault adder) {
	in := &w.instances[i]
	holds := w.holder == i
	if holds && in.phase <= standby { // the walsender of a process that crashed
		add("slot released", func(w *world) { w.holder = nobody })
	}
	if in.phase == down {
		add("start", func(w *world) { w.instances[i].phase = standby })
		return
	}
	fault("crash", func(w *world) {
		w.instances[i] = instance{}
		w.abandon(i)
	})
	if holds && in.phase > standby {
		fault("slot lost unnoticed", func(w *world) { w.holder = nobody })
	} else if in.phase == ready && w.holder == nobody && w.stable() == w.n {
		add("slot taken again", func(w *world) {
			in, k := &w.instances[i], m.checkpoint(w, w.n)
			if k.epoch > in.epoch {
				w.leave(i)
				return
			}
			w.holder = i
			in.done = max(in.done, k.done) // what was confirmed meanwhile may decide
			in.visible = in.visible.after(in.done)
		})
	}
	if done := endOf(in.done); holds && in.phase >= ready && w.confirmed < done {
		add("confirm", func(w *world) { w.confirm(done) })
	}
	switch in.phase {
	case standby:
		if w.holder == nobody {
			add("slot taken", func(w *world) {
				w.holder = i
				w.instances[i].phase = holding
				if m.mistake == readBeforeClaim {
					w.instances[i].done = m.checkpoint(w, w.stable()).done
				}
			})
		}
	case holding:
		m.claim(w, i, claimed, add)
	case unsettled:
		m.claim(w, i, ready, add)
	case claimed:
		m.read(w, i, add)
	case ready:
		m.begin(w, i, add)
	case wrote:
		add("checkpoint written", func(w *world) { m.mark(w, i) })
		if m.shared && w.current == in.txn && w.enrolled&checkpoints == 0 { // the abort's marker follows the former commit's
			add("checkpoints enrolled", func(w *world) { w.enrolled |= checkpoints })
		}
	case marked:
		if w.requests[i].answer == none {
			add("EndTxn sent", func(w *world) {
				in := &w.instances[i]
				w.requests[i] = request{answer: asked, epoch: in.epoch, txn: in.txn}
				in.phase = ending
			})
		}
		if done := endOf(in.to); m.mistake == confirmedBeforeCommit && holds && w.confirmed < done {
			add("confirm", func(w *world) { w.confirm(done) })
		}
	case ending:
		m.answered(w, i, add)
	}
}

// claim is InitProducerID. It ends what a former owner left open, and until that
// is complete the answer is CONCURRENT_TRANSACTIONS.
func (m *model) claim(w *world, i int8, then phase, add adder) {
	switch w.state {
	case empty:
		add("id claimed", func(w *world) {
			w.epoch++
			w.instances[i].epoch, w.instances[i].phase = w.epoch, then
			if m.mistake == readBeforeClaim && then == claimed {
				w.instances[i].phase = ready
			}
		})
	case ongoing:
		add("claim fences", func(w *world) { w.epoch++; m.end(w, abort) })
	}
}

// read waits until no transaction is open before the high watermark. What is read
// counts once the instance has committed a checkpoint of its own after it, which is
// this step's end here.
func (m *model) read(w *world, i int8, add adder) {
	upTo := w.stable()
	if upTo < w.n && m.mistake != readToLastStableOffset {
		return
	}
	add("checkpoint read", func(w *world) {
		in := &w.instances[i]
		if in.epoch != w.epoch && m.mistake != believedUnproved {
			m.fencedOff(w, i)
			return
		}
		k := m.checkpoint(w, upTo)
		in.done, in.phase, in.visible = k.done, ready, w.published&k.doubt.after(k.done)
		if m.mistake == resumedAtTransactionEnd {
			in.done = endOf(in.done)
		}
	})
}

// begin writes one or two events in a new transaction.
func (m *model) begin(w *world, i int8, add adder) {
	in := w.instances[i]
	if w.state == prepareCommit || w.state == prepareAbort {
		return // CONCURRENT_TRANSACTIONS
	}
	if in.epoch == w.epoch && endOf(in.done) < w.confirmed {
		return // the server sends nothing before what is confirmed
	}
	for to := in.done + 1; to <= min(in.done+2, events); to++ {
		if m.whole && to != endOf(to) && !(m.mistake == partBeforeRefused && in.bad) {
			continue
		}
		add([...]string{1: "first event written", 2: "events up to 2 written", 3: "events up to 3 written"}[to], func(w *world) { m.write(w, i, to) })
	}
}

func (m *model) write(w *world, i, to int8) {
	in := &w.instances[i]
	if in.epoch != w.epoch || w.state == ongoing && !m.shared {
		m.fencedOff(w, i)
		return
	}
	w.state, w.current, w.owner = ongoing, w.unused(), in.epoch
	in.txn, in.to, in.phase = w.current, to, wrote
	for e := in.done + 1; e <= to; e++ {
		if e == 2 && m.refused && !in.bad {
			m.end(w, abort)
			in.bad, in.phase, in.txn, in.to = true, ready, 0, 0
			if m.mistake == refusedRecordDropped {
				in.done = to
			}
			return
		}
		if in.visible.has(e) && m.mistake != visibleWrittenAgain {
			continue
		}
		bit := e
		if e == 2 && m.refused {
			bit += 8
		}
		w.written |= 1 << bit
		w.enrolled |= partition(e)
	}
}

func (m *model) mark(w *world, i int8) {
	in := &w.instances[i]
	if in.epoch != w.epoch || w.state != ongoing || w.current != in.txn {
		m.fencedOff(w, i)
		return
	}
	w.enrolled |= checkpoints
	k := mark{done: in.to, epoch: in.epoch, written: w.written.plain(), doubt: in.visible.after(in.to)}
	if m.mistake == doubtForgotten {
		k.doubt = 0
	}
	if m.mistake == checkpointBesideTransaction {
		k.outcome, k.stable = commit, true
	}
	w.append(k)
	in.phase = marked
}

// answered goes on after EndTxn.
func (m *model) answered(w *world, i int8, add adder) {
	switch w.requests[i].answer {
	case committed:
		add("commit known", func(w *world) {
			w.requests[i] = request{}
			w.instances[i].settle(w.instances[i].to)
		})
	case fenced:
		add("fenced", func(w *world) {
			w.requests[i] = request{}
			m.fencedOff(w, i)
		})
	case silence:
		add("outcome unknown", func(w *world) {
			w.requests[i] = request{}
			m.unknown(w, i)
		})
	}
}

// settle ends the instance's transaction.
func (in *instance) settle(done int8) {
	in.done, in.to, in.txn, in.phase = done, 0, 0, ready
	in.visible = in.visible.after(done)
}

// unknown is what to do when nobody knows whether the transaction is committed:
// begin anew, from what the checkpoint says.
func (m *model) unknown(w *world, i int8) {
	in := &w.instances[i]
	switch m.mistake {
	case commitRetriedAsSuccess:
		in.settle(in.to)
	case timeoutTakenForAbort:
		in.settle(in.done)
		in.phase = unsettled
	default:
		w.leave(i)
	}
}

// fencedOff is what to do when somebody else has the id.
func (m *model) fencedOff(w *world, i int8) {
	if m.mistake == fencingAnsweredByFencing {
		w.instances[i].settle(w.instances[i].done)
		w.instances[i].phase = unsettled
		return
	}
	w.leave(i)
}

// leave gives up the slot and drops what is in flight.
func (w *world) leave(i int8) {
	w.instances[i] = instance{phase: standby, bad: w.instances[i].bad}
	w.abandon(i)
	if w.holder == i {
		w.holder = nobody
	}
}

// abandon leaves a request to the network.
func (w *world) abandon(i int8) {
	if w.requests[i].answer == asked {
		w.requests[i].stale = true
		return
	}
	w.requests[i] = request{}
}
