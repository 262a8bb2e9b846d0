package exactlyonce

// broker are the steps of brokers and of another pipeline.
func (m *model) broker(w *world, add, fault adder) {
	switch {
	case w.state == ongoing:
		late := fault
		if w.orphaned() {
			late = add // sooner or later
		}
		late("transaction timeout", func(w *world) { w.epoch++; m.end(w, abort) })
	case w.state == empty:
	case w.told == w.enrolled:
		add("transaction complete", (*world).complete)
	default:
		for _, p := range []parts{first, second, checkpoints} {
			if w.enrolled&p != 0 && w.told&p == 0 {
				add("marker in "+p.String(), func(w *world) { w.tell(p) })
			}
		}
	}
	if m.halves && w.state == prepareCommit && !w.known {
		fault("commit forgotten", (*world).lose)
	}
	open := -1
	for i := range w.n {
		if w.marks[i].foreign {
			open = int(i)
		}
	}
	if open >= 0 {
		add("another pipeline's commit", func(w *world) { w.marks[open].stable = true })
	} else if !w.meddled {
		fault("another pipeline's transaction", func(w *world) {
			w.meddled = true
			w.append(mark{foreign: true})
		})
	}
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

// end decides about the current transaction.
func (m *model) end(w *world, o outcome) { w.end(o, m.refused) }

// network are the ways of a request for a commit.
func (m *model) network(w *world, i int8, add, fault adder) {
	q := w.requests[i]
	if q.answer != asked {
		return
	}
	decide := func(w *world) answer {
		if w.state != ongoing || w.epoch != q.epoch || w.current != q.txn {
			return fenced
		}
		m.end(w, commit)
		return committed
	}
	give := func(w *world, a answer) {
		if w.requests[i].stale {
			w.requests[i] = request{}
			return
		}
		w.requests[i].answer = a
	}
	add("EndTxn answered", func(w *world) {
		a := decide(w)
		w.known = w.known || a == committed && !w.requests[i].stale
		give(w, a)
	})
	fault("EndTxn lost", func(w *world) { give(w, silence) })
	fault("answer to EndTxn lost", func(w *world) { decide(w); give(w, silence) })
	if !q.stale {
		fault("EndTxn late", func(w *world) { // the client gives up; the request arrives later
			w.requests[i].stale = true
			m.unknown(w, i)
		})
	}
}
