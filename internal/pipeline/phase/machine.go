package phase

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Life is everything that decides on the step after an event. It is a value, Connecting
// at first.
type Life struct {
	Phase Phase
	// Once: events and checkpoint share a Kafka transaction, under a transactional id
	// claimed from session to session.
	Once bool
	Owns bool // the id is claimed
}

// Unclaimed reports whether a transactional id is still to be claimed.
func (l *Life) Unclaimed() bool { return l.Once && !l.Owns }

// On returns the step following the event, and tells each change of the phase.
// None: the rules have no such event in this phase.
func (l *Life) On(r *Rules, e Event, tell func(from, to Phase)) Step {
	rule := r.After[l.Phase][e]
	if rule.Do == None {
		return None
	}
	if from := l.Phase; from != rule.Next {
		l.Phase = rule.Next
		tell(from, rule.Next)
	}
	l.Owns = l.Owns || l.Once && e == Alone
	if rule.Do == Claim && l.Owns {
		return l.On(r, Alone, tell)
	}
	return rule.Do
}

// Machine is the life of a single pipeline. A single goroutine at a time calls
// On, any goroutine Now.
type Machine struct {
	life Life
	tell func(from, to Phase)
	now  atomic.Int32
}

// New returns the machine of a pipeline that connects. tell is called at each change of the
// phase, on the goroutine that calls On.
func New(once bool, tell func(from, to Phase)) *Machine {
	m := &Machine{life: Life{Once: once}}
	m.tell = func(from, to Phase) {
		m.now.Store(int32(to))
		tell(from, to)
	}
	return m
}

// On returns the step following the event. An error is a bug of this program.
func (m *Machine) On(e Event) (Step, error) {
	if step := m.life.On(Protocol, e, m.tell); step != None {
		return step, nil
	}
	return None, fmt.Errorf("%w: event %d while %s", errBug, e, m.life.Phase)
}

// errBug is the error of On.
var errBug = errors.New("the pipeline's phases are out of order; please report this, it is a bug")

// Now is the present phase.
func (m *Machine) Now() Phase { return Phase(m.now.Load()) }

// Unclaimed is Life's, for the goroutine that calls On.
func (m *Machine) Unclaimed() bool { return m.life.Unclaimed() }
