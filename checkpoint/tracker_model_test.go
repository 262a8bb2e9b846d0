package checkpoint

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// model does what a Tracker does, in the simplest way: it remembers every step
// and finds the position by going through all of them.
type model struct {
	start pg.LSN
	steps []modelStep
	byTkt map[Ticket]int // index into steps
	open  bool           // the last step is an open transaction
	fatal bool
	last  Landmark // at the time of freeze
}

type modelStep struct {
	ticket      Ticket // 0 for an end without records
	added, done int
	end         pg.LSN
	landmark    Landmark
	sealed      bool
}

func newModel(start pg.LSN) *model { return &model{start: start, byTkt: map[Ticket]int{}} }

func (m *model) add(k Ticket) error {
	if !m.open {
		if _, dup := m.byTkt[k]; dup || k == 0 {
			return fmt.Errorf("ticket %d used twice", k)
		}
		m.byTkt[k] = len(m.steps)
		m.steps = append(m.steps, modelStep{ticket: k})
		m.open = true
	}
	last := &m.steps[len(m.steps)-1]
	if last.ticket != k {
		return fmt.Errorf("ticket %d for a record of the transaction with ticket %d", k, last.ticket)
	}
	last.added++
	return nil
}

func (m *model) highest() pg.LSN {
	lsn := m.start
	for _, s := range m.steps {
		lsn = max(lsn, s.end)
	}
	return lsn
}

func (m *model) seal(end pg.LSN, landmark Landmark) {
	switch {
	case m.fatal:
	case end < m.highest():
		m.freeze()
	case m.open:
		last := &m.steps[len(m.steps)-1]
		last.end, last.landmark, last.sealed = end, landmark, true
		m.open = false
	default:
		m.steps = append(m.steps, modelStep{end: end, sealed: true})
	}
}

func (m *model) idle(pos pg.LSN) {
	if !m.fatal && !m.open && pos >= m.highest() {
		m.steps = append(m.steps, modelStep{end: pos, sealed: true})
	}
}

func (m *model) done(k Ticket, n int) {
	i, ok := m.byTkt[k]
	if n == 0 {
		return
	}
	if !ok || n < 0 || m.steps[i].done+n > m.steps[i].added {
		if !m.fatal {
			m.freeze()
		}
		return
	}
	m.steps[i].done += n
}

// freeze makes the present position the last.
func (m *model) freeze() {
	m.last = m.landmark()
	pos := m.position()
	m.start, m.fatal = pos, true
}

func (m *model) position() pg.LSN {
	pos := m.start
	if m.fatal {
		return pos
	}
	for _, s := range m.steps {
		if !s.sealed || s.done < s.added {
			break
		}
		pos = s.end
	}
	return pos
}

func (m *model) landmark() Landmark {
	if m.fatal {
		return m.last
	}
	var last Landmark
	for _, s := range m.steps {
		if !s.sealed || s.done < s.added {
			break
		}
		if s.added > 0 {
			last = s.landmark
		}
	}
	return last
}

func (m *model) inFlight() (n int) {
	for _, s := range m.steps {
		n += s.added - s.done
	}
	return n
}

// history drives a Tracker and the model through the same random steps, and
// compares them after each.
type history struct {
	t       *rapid.T
	misuse  bool
	stalled bool // nothing is acked for now
	tracker *Tracker
	model   *model
	lsn     pg.LSN
	open    []Ticket // with something in flight, perhaps
	highest pg.LSN   // position so far
}

func newHistory(misuse bool, t *rapid.T) *history {
	start := pg.LSN(rapid.IntRange(0, 2).Draw(t, "start") * 100)
	return &history{t: t, misuse: misuse, tracker: NewTracker(start), model: newModel(start), lsn: start}
}

// next draws a number below n.
func (h *history) next(n int) int { return rapid.IntRange(0, n-1).Draw(h.t, "choice") }

func (h *history) step() {
	switch op := h.next(20); {
	case op < 8:
		k := h.tracker.Add()
		if err := h.model.add(k); err != nil {
			h.t.Fatal(err)
		}
		h.open = append(h.open, k)
	case op < 11:
		h.lsn += pg.LSN(h.next(5))
		h.seal(h.lsn)
	case op < 13:
		if !h.model.open {
			h.lsn += pg.LSN(h.next(5))
			h.idle(h.lsn)
		} else {
			h.idle(h.lsn + pg.LSN(h.next(5)))
		}
	case op < 19:
		h.doneSome()
	case h.misuse && h.next(50) == 0:
		h.misstep()
	default:
		h.idle(h.lsn - min(h.lsn, pg.LSN(h.next(5))))
	}
	h.compare()
}

func (h *history) seal(end pg.LSN) {
	landmark := Landmark{Commit: end, XID: uint32(len(h.model.steps))}
	_ = h.tracker.Seal(end, landmark)
	h.model.seal(end, landmark)
}

func (h *history) idle(pos pg.LSN) { _ = h.tracker.Keepalive(pos); h.model.idle(pos) }

// doneSome acks records of a single transaction, mostly not the oldest.
func (h *history) doneSome() {
	if h.stalled || len(h.open) == 0 {
		return
	}
	i := h.next(len(h.open))
	k, n := h.open[i], 0
	rest := h.open[:0]
	for _, o := range h.open {
		if o == k && (n == 0 || h.next(2) == 0) {
			n++
		} else {
			rest = append(rest, o)
		}
	}
	h.open = rest
	h.tracker.Done(k, n)
	h.model.done(k, n)
}

func (h *history) misstep() {
	if h.next(2) == 0 {
		h.seal(h.lsn - min(h.lsn, pg.LSN(1+h.next(5))))
		return
	}
	k, n := Ticket(h.next(len(h.model.steps)+2)), h.next(5)-1
	h.tracker.Done(k, n)
	h.model.done(k, n)
	h.open = nil // the records in flight are no longer known here
}

func (h *history) compare() {
	pos := h.tracker.Position()
	if want := h.model.position(); pos != want {
		h.t.Fatalf("position %s, want %s", pos, want)
	}
	if pos < h.highest {
		h.t.Fatalf("position went back from %s to %s", h.highest, pos)
	}
	h.highest = pos
	if got, want := h.tracker.Landmark(), h.model.landmark(); got != want {
		h.t.Fatalf("landmark %v, want %v", got, want)
	}
	if got, want := h.tracker.InFlight(), h.model.inFlight(); got != want {
		h.t.Fatalf("%d in flight, want %d", got, want)
	}
	if broken := h.tracker.Keepalive(0) != nil; broken != h.model.fatal {
		h.t.Fatalf("tracker broken: %v, want %v", broken, h.model.fatal)
	}
}

func TestTrackerIsTheModel(t *testing.T) {
	grown := 0
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(rapid.Bool().Draw(t, "misuse"), t)
		steps := 800
		stalled := rapid.SampledFrom([]int{0, 0, steps * 3 / 4}).Draw(t, "stalled")
		for i := range steps {
			h.stalled = i < stalled
			h.step()
		}
		if len(h.tracker.ring) > initialRing {
			grown++
		}
	})
	if grown == 0 && !t.Failed() {
		t.Error("no history made the ring grow")
	}
}
