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

// step leads to a state that may follow.
type step struct {
	name string
	of   int8 // the instance, or nobody
	// swapped: the instances have changed places in next.
	swapped bool
	next    world
}

// moves finds the steps from a state.
type moves struct {
	m      *model
	w      *world
	of     int8 // the instance whose step comes next, or nobody
	faults bool // only steps that are faults; false: only others
	visit  func(*step)
	step   step
}

// steps visits all that may happen next: the faults, or all else.
func (m *model) steps(w *world, faults bool, visit func(*step)) {
	x := moves{m: m, w: w, of: nobody, faults: faults, visit: visit}
	m.broker(w, &x)
	m.postgres(w, &x)
	for i := range int8(2) {
		x.of = i
		m.network(w, i, &x)
		m.instance(w, i, &x)
	}
}

func (x *moves) add(name string, change func(*world)) { x.take(name, false, change) }

func (x *moves) fault(name string, change func(*world)) { x.take(name, true, change) }

func (x *moves) take(name string, fault bool, change func(*world)) {
	if fault != x.faults {
		return
	}
	s := &x.step
	s.name, s.of, s.next = name, x.of, *x.w
	change(&s.next)
	x.m.forget(&s.next)
	s.swapped = s.next.order()
	x.visit(s)
}

// instance are the steps of one process.
func (m *model) instance(w *world, i int8, x *moves) {
	in := &w.instances[i]
	holds := w.holder == i
	if holds && in.phase <= standby { // the walsender of a process that crashed
		x.add("slot released", func(w *world) { w.holder = nobody })
	}
	if in.phase == down {
		x.add("start", func(w *world) { w.instances[i].phase = standby })
		return
	}
	x.fault("crash", func(w *world) {
		w.instances[i] = instance{}
		w.abandon(i)
	})
	if holds && in.phase > standby {
		x.fault("slot lost unnoticed", func(w *world) { w.holder = nobody })
	} else if in.phase == ready && w.holder == nobody && w.stable() == w.n {
		x.add("slot taken again", func(w *world) {
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
		x.add("confirm", func(w *world) { w.confirm(done) })
	}
	switch in.phase {
	case standby:
		if w.holder == nobody {
			x.add("slot taken", func(w *world) {
				w.holder = i
				w.instances[i].phase = holding
				if m.mistake == readBeforeClaim {
					w.instances[i].done = m.checkpoint(w, w.stable()).done
				}
			})
		}
	case holding:
		m.claim(w, i, claimed, x)
	case unsettled:
		m.claim(w, i, ready, x)
	case claimed:
		m.read(w, i, x)
	case ready:
		m.begin(w, i, x)
	case wrote:
		x.add("checkpoint written", func(w *world) { m.mark(w, i) })
		if m.shared && w.current == in.txn && w.enrolled&checkpoints == 0 { // the abort's marker follows the former commit's
			x.add("checkpoints enrolled", func(w *world) { w.enrolled |= checkpoints })
		}
	case marked:
		if w.requests[i].answer == none {
			x.add("EndTxn sent", func(w *world) {
				in := &w.instances[i]
				w.requests[i] = request{answer: asked, epoch: in.epoch, txn: in.txn}
				in.phase = ending
			})
		}
		if done := endOf(in.to); m.mistake == confirmedBeforeCommit && holds && w.confirmed < done {
			x.add("confirm", func(w *world) { w.confirm(done) })
		}
	case ending:
		m.answered(w, i, x)
	}
}

// claim is InitProducerID. It ends what a former owner left open, and until that
// is complete the answer is CONCURRENT_TRANSACTIONS.
func (m *model) claim(w *world, i int8, then phase, x *moves) {
	switch w.state {
	case empty:
		x.add("id claimed", func(w *world) {
			w.epoch++
			w.instances[i].epoch, w.instances[i].phase = w.epoch, then
			if m.mistake == readBeforeClaim && then == claimed {
				w.instances[i].phase = ready
			}
		})
	case ongoing:
		x.add("claim fences", func(w *world) { w.epoch++; m.end(w, abort) })
	}
}

// read waits until no transaction is open before the high watermark. What is read
// counts once the instance has committed a checkpoint of its own after it, which is
// this step's end here.
func (m *model) read(w *world, i int8, x *moves) {
	upTo := w.stable()
	if upTo < w.n && m.mistake != readToLastStableOffset {
		return
	}
	x.add("checkpoint read", func(w *world) {
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
func (m *model) begin(w *world, i int8, x *moves) {
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
		x.add([...]string{1: "first event written", 2: "events up to 2 written", 3: "events up to 3 written"}[to], func(w *world) { m.write(w, i, to) })
	}
}

func (m *model) write(w *world, i, to int8) {
	in := &w.instances[i]
	if in.epoch != w.epoch || w.state == ongoing && !m.shared {
		m.fencedOff(w, i)
		return
	}
	w.state, w.current, w.owner = ongoing, fresh, in.epoch
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
			bit += dead
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
func (m *model) answered(w *world, i int8, x *moves) {
	switch w.requests[i].answer {
	case committed:
		x.add("commit known", func(w *world) {
			w.requests[i] = request{}
			w.instances[i].settle(w.instances[i].to)
		})
	case fenced:
		x.add("fenced", func(w *world) {
			w.requests[i] = request{}
			m.fencedOff(w, i)
		})
	case silence:
		x.add("outcome unknown", func(w *world) {
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
