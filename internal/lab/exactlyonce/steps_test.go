package exactlyonce

import "github.com/cdc-outbox/cdc-outbox/internal/pipeline/phase"

// step leads to a possible next state.
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
	faults bool // only faults; false: only other steps
	visit  func(*step)
	step   step
}

// steps visits all possible next steps: the faults, or all else.
func (m *model) steps(w *world, faults bool, visit func(*step)) {
	x := moves{m: m, w: w, of: nobody, faults: faults, visit: visit}
	m.broker(w, &x)
	m.postgres(w, &x)
	m.commits(w, &x)
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

// instance are the steps of a single process.
func (m *model) instance(w *world, i int8, x *moves) {
	in := &w.instances[i]
	holds := w.holder == i
	if holds && in.life.Phase == phase.Connecting { // the walsender of a crashed process
		x.add("slot released", func(w *world) { w.holder = nobody })
	}
	if !in.life.Once {
		x.add("start", func(w *world) { w.instances[i].life = begun })
		return
	}
	x.fault("crash", func(w *world) {
		w.instances[i] = instance{}
		w.abandon(i)
	})
	if holds && in.life.Phase != phase.Connecting {
		x.fault("slot lost unnoticed", func(w *world) { w.holder = nobody })
	} else if in.life.Phase == phase.Ready && in.doing == idle && w.holder == nobody && w.stable() == w.n {
		if m.lacks(w) {
			x.add("loss found", func(w *world) { w.leave(i) })
		} else {
			x.add("slot taken again", func(w *world) { m.takeAgain(w, i) })
		}
	}
	if done := endOf(in.done); holds && in.life.Phase == phase.Ready && w.confirmed < done {
		x.add("confirm", func(w *world) { w.confirm(done) })
	}
	switch in.life.Phase {
	case phase.Connecting:
		switch {
		case w.holder != nobody:
		case m.lacks(w):
			m.remake(w, i, x)
		default:
			x.add("slot taken", func(w *world) { w.holder = i; m.on(w, i, phase.Held) })
		}
	case phase.Holding, memory:
		m.claim(w, i, x)
	case phase.Claimed:
		m.read(w, i, x)
	case phase.Repairing:
		m.repair(w, i, x)
	case phase.Ready:
		m.transact(w, i, x)
	}
}

// on has the instance see an event, and take the following steps without further
// events. The awaited claim of the id and reading of the checkpoint are separate
// steps.
func (m *model) on(w *world, i int8, e phase.Event) {
	in := &w.instances[i]
	for {
		switch in.life.On(m.rules, e, func(_, _ phase.Phase) {}) {
		case phase.Save: // a transaction without events
			if in.epoch != w.epoch {
				m.answer(w, i, phase.Fenced)
				return
			}
			e = phase.Saved
		case phase.Replay:
			e = phase.Recognised
		default:
			return
		}
	}
}

// answer has the instance go on after the end of the transaction.
func (m *model) answer(w *world, i int8, a phase.Answer) {
	in := &w.instances[i]
	switch m.rules.Answered[a] {
	case phase.Publish:
		in.parked, in.unended = in.settled, in.named
		in.settle(in.to)
	case phase.BeginAnew:
		w.leave(i)
	case phase.Claim: // a mistake
		in.settle(in.done)
		in.life.Phase = memory
	}
}

// takeAgain is a session after the first.
func (m *model) takeAgain(w *world, i int8) {
	in, k := &w.instances[i], m.checkpoint(w, w.n)
	if phase.Overtaken(int64(in.epoch), int64(k.epoch)) {
		w.leave(i)
		return
	}
	w.holder = i
	in.done = max(in.done, k.done) // everything confirmed meanwhile may decide
	in.visible = in.visible.after(in.done) | in.visible&in.parked
	for _, e := range [...]phase.Event{phase.Lost, phase.Held, phase.Same} {
		m.on(w, i, e)
	}
}

// claim is InitProducerID. A claim ends a transaction left open by a former owner;
// until that end is complete the answer is CONCURRENT_TRANSACTIONS.
func (m *model) claim(w *world, i int8, x *moves) {
	switch w.state {
	case empty:
		x.add("id claimed", func(w *world) {
			w.epoch++
			w.instances[i].epoch = w.epoch
			m.on(w, i, phase.Alone)
		})
	case ongoing:
		x.add("claim fences", func(w *world) { w.epoch++; m.decide(w, abort) })
	}
}

// read waits until no transaction is open before the high watermark.
func (m *model) read(w *world, i int8, x *moves) {
	upTo := w.stable()
	if upTo < w.n && m.mistake != readToLastStableOffset {
		return
	}
	if in := &w.instances[i]; in.snapshot != 0 {
		x.add("rows compared", func(w *world) { m.compareRows(w, i) })
		return
	}
	x.add("checkpoint read", func(w *world) {
		in, k := &w.instances[i], m.checkpoint(w, upTo)
		in.done, in.parked, in.unended = k.done, w.parked&^k.settled, w.parked&k.settled
		if m.mistake == parkedForgotten {
			in.parked = 0
		}
		in.visible = w.published & (k.doubt.after(k.done) | k.doubt&in.parked)
		if m.mistake == resumedAtTransactionEnd {
			in.done = endOf(in.done)
		}
		if w.holder == i {
			in.done = max(in.done, w.since) // the slot has nothing before
		}
		m.on(w, i, phase.Same)
	})
}

// transact are the steps of the instance's sink.
func (m *model) transact(w *world, i int8, x *moves) {
	in := &w.instances[i]
	switch in.doing {
	case idle:
		m.begin(w, i, x)
	case wrote:
		if in.life.Phase == phase.Repairing {
			x.add("no checkpoint written", func(w *world) { w.instances[i].doing = marked })
			return
		}
		x.add("checkpoint written", func(w *world) { m.mark(w, i) })
		if m.shared && w.current == in.txn && w.enrolled&checkpoints == 0 { // the abort's marker follows the former commit's
			x.add("checkpoints enrolled", func(w *world) { w.enrolled |= checkpoints })
		}
	case marked:
		if w.requests[i].answer == none {
			x.add("EndTxn sent", func(w *world) {
				in := &w.instances[i]
				w.requests[i] = request{answer: asked, epoch: in.epoch, txn: in.txn}
				in.doing = ending
			})
		}
		if done := endOf(in.to); m.mistake == confirmedBeforeCommit && w.holder == i && w.confirmed < done {
			x.add("confirm", func(w *world) { w.confirm(done) })
		}
	case ending:
		m.answered(w, i, x)
	}
}

// begin writes one or two events in a new transaction.
func (m *model) begin(w *world, i int8, x *moves) {
	in := w.instances[i]
	if w.state == prepareCommit || w.state == prepareAbort {
		return // CONCURRENT_TRANSACTIONS
	}
	if in.parked.upTo(in.done) != 0 { // events behind come again, and are parked anew
		x.add("parked event released", func(w *world) { m.release(w, i) })
	}
	if in.unended != 0 {
		x.add("ends written", func(w *world) { m.end(w, i) })
	}
	if in.epoch == w.epoch && endOf(in.done) < w.confirmed && in.life.Phase != phase.Repairing {
		return // the server sends nothing before everything confirmed
	}
	for to := in.done + 1; to <= min(in.done+2, m.last(w, &in)); to++ {
		if m.whole && to != endOf(to) && !(m.mistake == partBeforeRefused && in.bad) {
			continue
		}
		x.add([...]string{1: "first event written", 2: "events up to 2 written", 3: "events up to 3 written"}[to], func(w *world) { m.write(w, i, to) })
	}
}

func (m *model) write(w *world, i, to int8) {
	in := &w.instances[i]
	if !m.open(w, i, to) {
		return
	}
	for e := in.done + 1; e <= to; e++ {
		if e == 2 && m.refused && !in.bad {
			m.decide(w, abort)
			in.bad, in.doing, in.txn, in.to = true, idle, 0, 0
			if m.mistake == refusedRecordDropped {
				in.done = to
			}
			return
		}
		if in.visible.has(e) && m.mistake != visibleWrittenAgain || in.parked.has(e) {
			continue // the latter is in the quarantine already
		}
		bit := e
		if e == 2 && m.refused {
			bit += dead
		}
		if m.parks && (e == 1 || partition(e) == first && in.settled != 0) {
			bit += dead
			in.settled |= 1 << e
		}
		w.written |= 1 << bit
		w.enrolled |= partition(e)
	}
}

// open begins a transaction for the events up to there, unless the instance is fenced.
func (m *model) open(w *world, i, to int8) bool {
	in := &w.instances[i]
	if in.epoch != w.epoch || w.state == ongoing && !m.shared {
		m.answer(w, i, phase.Fenced)
		return false
	}
	w.state, w.current, w.owner = ongoing, fresh, in.epoch
	in.txn, in.to, in.doing, in.settled, in.named = w.current, to, wrote, in.parked, in.unended
	return true
}

// release publishes the first parked event in a transaction of its own: a transaction need
// not have all of a key.
func (m *model) release(w *world, i int8) {
	in := &w.instances[i]
	if !m.open(w, i, in.done) {
		return
	}
	e, ready := int8(1), in.parked.upTo(in.done)
	if !ready.has(1) || m.mistake == releasedOutOfOrder && ready.has(3) {
		e = 3
	}
	if !in.visible.has(e) {
		w.written |= 1 << e
		w.enrolled |= partition(e)
	}
	in.settled &^= 1 << e
	m.writeEnds(w, in.unended)
	if in.named = 1 << e; m.mistake == endedWithEvent {
		m.writeEnds(w, in.named)
		in.named = 0
	}
}

// end ends the events settled by the last checkpoint.
func (m *model) end(w *world, i int8) {
	in := &w.instances[i]
	if m.open(w, i, in.done) {
		m.writeEnds(w, in.unended)
		in.named = 0
	}
}

func (m *model) writeEnds(w *world, of set) {
	if of != 0 {
		w.written |= of.ends()
		w.enrolled |= second
	}
}

func (m *model) mark(w *world, i int8) {
	in := &w.instances[i]
	if in.epoch != w.epoch || w.state != ongoing || w.current != in.txn {
		m.answer(w, i, phase.Fenced)
		return
	}
	w.enrolled |= checkpoints
	k := mark{done: in.to, epoch: in.epoch, written: w.written.plain(), settled: in.named, doubt: in.visible.after(in.to) | in.visible&in.settled}
	if m.mistake == doubtForgotten {
		k.doubt = 0
	}
	if m.mistake == checkpointBesideTransaction {
		k.outcome, k.stable = commit, true
	}
	w.append(k)
	in.doing = marked
}

// answered goes on after EndTxn.
func (m *model) answered(w *world, i int8, x *moves) {
	switch w.requests[i].answer {
	case committed:
		x.add("commit known", func(w *world) {
			w.requests[i] = request{}
			m.answer(w, i, phase.Committed)
		})
	case fenced:
		x.add("fenced", func(w *world) {
			w.requests[i] = request{}
			m.answer(w, i, phase.Fenced)
		})
	case silence:
		x.add("outcome unknown", func(w *world) {
			w.requests[i] = request{}
			m.answer(w, i, phase.Unknown)
		})
	}
}

// settle ends the instance's transaction.
func (in *instance) settle(done int8) {
	in.done, in.to, in.txn, in.doing, in.settled, in.named = done, 0, 0, idle, 0, 0
	in.visible = in.visible.after(done) | in.visible&in.parked
}

// leave gives up the slot and drops everything in flight.
func (w *world) leave(i int8) {
	w.instances[i] = instance{life: begun, bad: w.instances[i].bad}
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
