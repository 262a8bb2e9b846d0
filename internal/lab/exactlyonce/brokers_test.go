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
				add("marker in "+p.String(), func(w *world) { m.tell(w, p) })
			}
		}
	}
	if m.shared && w.state == empty && w.had(w.epoch) {
		fault("partition added late", func(w *world) { // the request was repeated; this one begins a transaction
			w.state, w.current, w.owner, w.enrolled = ongoing, w.unused(), w.epoch, checkpoints
		})
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

// end decides about the current transaction.
func (m *model) end(w *world, o outcome) { w.end(o, m.refused) }

// network are the ways of a request for a commit. A broker knows the transaction by its
// epoch. So where transactions share one, a request that comes late ends the next one,
// and the client sends it only once.
func (m *model) network(w *world, i int8, add, fault adder) {
	q := w.requests[i]
	if q.answer != asked {
		return
	}
	decide := func(w *world) answer {
		if w.state != ongoing || w.epoch != q.epoch || w.current != q.txn && !m.shared {
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
		if !m.shared || m.mistake == endRepeated {
			fault("EndTxn late and repeated", func(w *world) { // the answer is to the second one
				w.requests[i].stale = true
				if decide(w) != committed {
					m.fencedOff(w, i)
					return
				}
				w.known = true
				w.instances[i].settle(w.instances[i].to)
			})
		}
	}
}
