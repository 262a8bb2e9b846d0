package exactlyonce

import "github.com/cdc-outbox/cdc-outbox/internal/pipeline/phase"

// broker are the steps of brokers and of another pipeline.
func (m *model) broker(w *world, x *moves) {
	switch w.state {
	case ongoing:
		x.take("transaction timeout", !w.orphaned(), func(w *world) { w.epoch++; m.decide(w, abort) }) // of an orphan, sooner or later
	case prepareCommit, prepareAbort:
		m.markers(w, x)
	}
	if m.shared && w.state == empty && w.had(w.epoch) {
		x.fault("partition added late", func(w *world) { // the second of two such requests begins a transaction
			w.state, w.current, w.owner, w.enrolled = ongoing, fresh, w.epoch, checkpoints
		})
	}
	if m.halves && w.state == prepareCommit && !w.known {
		x.fault("commit forgotten", m.lose)
	}
	open := -1
	for i := range w.n {
		if w.marks[i].foreign {
			open = int(i)
		}
	}
	if open >= 0 {
		x.add("another pipeline's commit", func(w *world) { w.marks[open].stable = true })
	} else if !w.meddled {
		x.fault("another pipeline's transaction", func(w *world) {
			w.meddled = true
			w.append(mark{foreign: true})
		})
	}
}

// markers are the steps of the end of a transaction.
func (m *model) markers(w *world, x *moves) {
	awaited := w.enrolled
	if !m.partsSeen(w) {
		awaited &= checkpoints
	}
	if w.told == awaited {
		x.add("transaction complete", (*world).complete)
		return
	}
	for p := first; p <= checkpoints; p <<= 1 {
		if awaited&^w.told&p != 0 {
			x.add(markerIn[p], func(w *world) { m.tell(w, p) })
		}
	}
}

var markerIn = map[parts]string{first: "marker in first partition", second: "marker in second partition", checkpoints: "marker in checkpoints"}

// had reports whether there was a transaction with the epoch.
func (w *world) had(epoch int8) bool {
	for _, k := range w.marks[:w.n] {
		if !k.foreign && k.epoch == epoch && epoch > 0 {
			return true
		}
	}
	return false
}

// orphaned reports whether nobody will end the open transaction.
func (w *world) orphaned() bool {
	for i := range w.instances {
		if w.instances[i].txn == w.current || w.requests[i].txn == w.current {
			return false
		}
	}
	return true
}

// decide ends the current transaction.
func (m *model) decide(w *world, o outcome) { w.end(o, m) }

// network are the ways of a request for a commit. A broker knows the transaction by
// the epoch. So where transactions share an epoch, a late request ends the next
// transaction, and the client sends requests only once.
func (m *model) network(w *world, i int8, x *moves) {
	q := w.requests[i]
	if q.answer != asked {
		return
	}
	decide := func(w *world) answer {
		if w.state != ongoing || w.epoch != q.epoch || w.current != q.txn && !m.shared {
			return fenced
		}
		m.decide(w, commit)
		return committed
	}
	give := func(w *world, a answer) {
		if w.requests[i].stale {
			w.requests[i] = request{}
			return
		}
		w.requests[i].answer = a
	}
	x.add("EndTxn answered", func(w *world) {
		a := decide(w)
		w.known = w.known || a == committed && !w.requests[i].stale
		give(w, a)
	})
	x.fault("EndTxn lost", func(w *world) { give(w, silence) })
	x.fault("answer to EndTxn lost", func(w *world) { decide(w); give(w, silence) })
	if !q.stale {
		x.fault("EndTxn late", func(w *world) { // the client gives up; the request arrives later
			w.requests[i].stale = true
			m.answer(w, i, phase.Unknown)
		})
		if !m.shared || m.mistake == endRepeated {
			x.fault("EndTxn late and repeated", func(w *world) { // the answer is to the second request
				w.requests[i].stale = true
				if decide(w) != committed {
					m.answer(w, i, phase.Fenced)
					return
				}
				w.known = true
				m.answer(w, i, phase.Committed)
			})
		}
	}
}
