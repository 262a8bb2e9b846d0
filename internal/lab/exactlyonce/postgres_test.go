package exactlyonce

import "github.com/cdc-outbox/cdc-outbox/internal/pipeline/phase"

// postgres are the crashes of PostgreSQL. They end the stream, and set the slot back to
// the position last written to disk. Events behind are sent again.
func (m *model) postgres(w *world, x *moves) {
	for back := range w.confirmed {
		if !w.earlier.has(back) {
			continue
		}
		x.fault(backAt[back], func(w *world) {
			if m.mistake == replayWritten && w.holder != nobody {
				if in := &w.instances[w.holder]; in.life.Phase == phase.Ready && in.doing == idle {
					in.done = min(in.done, back)
				}
			}
			w.confirmed, w.earlier, w.holder = back, 0, nobody
		})
	}
}

var backAt = [...]string{"PostgreSQL crashes, slot back at 0", "PostgreSQL crashes, slot back at 1", "PostgreSQL crashes, slot back at 2"}

// confirm moves the slot. PostgreSQL need not write the position to disk.
func (w *world) confirm(done int8) {
	w.earlier |= 1 << w.confirmed
	w.confirmed = done
}
