package exactlyonce

import "github.com/cdc-outbox/cdc-outbox/internal/pipeline/phase"

// commits are the commits of the database, where the slot may be lost: a new slot
// begins behind those before.
func (m *model) commits(w *world, x *moves) {
	if !m.repairs {
		return
	}
	if w.rows < events {
		x.add("commit in the database", func(w *world) { w.rows = w.rows + 2 - w.rows/2 })
	}
	if !w.gone {
		x.fault("slot dropped", func(w *world) { w.gone, w.holder, w.earlier = true, nobody, 0 })
	}
}

// lacks reports whether a start finds a loss of log.
func (m *model) lacks(w *world) bool {
	if m.mistake == halfMadeSlotRead {
		return w.gone
	}
	return m.lacksLog(w)
}

// lacksLog reports whether there is a loss of log that a start would find: noted in the
// checkpoint, or by the slot.
func (m *model) lacksLog(w *world) bool {
	return w.gone || w.lost || m.repairs && endOf(m.checkpoint(w, w.n).done) < w.confirmed
}

// remake makes the slot anew, with its first snapshot.
func (m *model) remake(w *world, i int8, x *moves) {
	if !w.lost {
		x.add("loss noted", func(w *world) { w.lost = true })
		return
	}
	x.add("slot made anew", func(w *world) {
		in := &w.instances[i]
		w.gone, w.holder, w.since, w.confirmed, w.earlier = false, i, w.rows, w.rows, 0
		in.snapshot = w.rows + 1
		if m.mistake == comparedBeforeClaim {
			in.done = w.published.prefix()
		}
		m.on(w, i, phase.Held)
	})
}

// compareRows finds the missing events of the snapshot. If the checkpoint has changed,
// a former holder has saved it: everything begins anew.
func (m *model) compareRows(w *world, i int8) {
	in := &w.instances[i]
	if !w.lost {
		in.snapshot, in.done = 0, 0
		if w.holder == i {
			w.holder = nobody
		}
		m.on(w, i, phase.Passed)
		return
	}
	if m.mistake == laterSnapshotTrusted {
		in.snapshot = w.rows + 1
	}
	if m.mistake != comparedBeforeClaim {
		in.done = w.published.prefix()
	}
	m.on(w, i, phase.Lacking)
}

// repair are the steps of an instance that publishes the missing events.
func (m *model) repair(w *world, i int8, x *moves) {
	in := &w.instances[i]
	if in.doing != idle || in.done < in.snapshot-1 {
		m.transact(w, i, x)
		return
	}
	x.add("repaired", func(w *world) {
		in := &w.instances[i]
		if in.epoch != w.epoch {
			m.answer(w, i, phase.Fenced)
			return
		}
		in.done, in.snapshot, w.lost = w.since, 0, false
		if w.holder != i { // the slot was lost meanwhile: the checkpoint is of the snapshot
			in.done = w.published.prefix()
		}
		w.append(mark{done: in.done, epoch: in.epoch, outcome: commit, stable: true})
		m.on(w, i, phase.Repaired)
	})
}

// last is the last event that an instance can write: of the snapshot, or of the log.
func (m *model) last(w *world, in *instance) int8 {
	switch {
	case !m.repairs:
		return events
	case in.life.Phase == phase.Repairing:
		return in.snapshot - 1
	}
	return w.rows
}
