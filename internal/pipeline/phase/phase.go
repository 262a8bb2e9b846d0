// Package phase has the phases of a pipeline that reads a slot, and the changes between them
// that are allowed.
package phase

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// Phase is a stage of a pipeline's life. None survives a restart: a process begins with
// Connecting.
type Phase int32

// The phases, in the order of a life without trouble. /status, the metric phase, the log and
// the documents have their names.
const (
	// Connecting has no slot. Every session with PostgreSQL begins with it, and every
	// session that fails comes back to it.
	Connecting Phase = iota
	// Standby waits for the slot, which another process reads.
	Standby
	// Holding has the slot. Earlier looks at slot and checkpoint are out of date.
	Holding
	// Claimed alone can write to Kafka: with exactly once it has the transactional id,
	// otherwise no predecessor has a lease.
	Claimed
	// Compared has found slot and checkpoint as they were before the slot was held. From
	// here on, checkpoints are saved.
	Compared
	// Replaying has saved the first checkpoint of its epoch, and reads until the log is
	// known to be the same as before. Later events are published; nothing is confirmed.
	Replaying
	// Ready confirms what is published.
	Ready
	// Ended reads, writes and confirms nothing any more.
	Ended
)

var names = [...]string{"connecting", "standby", "holding", "claimed", "compared", "replaying", "ready", "ended"}

// String returns the phase's name.
func (p Phase) String() string { return names[p] }

// follow has the allowed changes, by present phase.
var follow = [...][]Phase{
	Connecting: {Connecting, Standby, Holding, Ended},
	Standby:    {Connecting, Standby, Holding, Ended},
	Holding:    {Connecting, Claimed, Ended},
	Claimed:    {Connecting, Compared, Ended},
	Compared:   {Connecting, Replaying, Ended},
	Replaying:  {Connecting, Ready, Ended},
	Ready:      {Connecting, Ended},
	Ended:      {},
}

// Before reports whether next may follow p.
func (p Phase) Before(next Phase) bool { return slices.Contains(follow[p], next) }

// Machine is the phase of one pipeline, Connecting at first. One goroutine at a time calls To,
// any goroutine the other methods.
type Machine struct {
	// Tell is called at each change, on the goroutine that makes it; required.
	Tell func(from, to Phase)

	now  atomic.Int32
	been atomic.Uint32 // a bit for each phase
}

// errBug is the error of all methods.
var errBug = errors.New("the pipeline's phases are out of order; please report this, it is a bug")

// To changes the phase. A change that the table does not allow is an error: a bug of this
// program.
func (m *Machine) To(next Phase) error {
	now := m.Now()
	if !now.Before(next) {
		return fmt.Errorf("%w: %s cannot follow %s", errBug, next, now)
	}
	m.been.Or(1 << next)
	if now != next {
		m.now.Store(int32(next))
		m.Tell(now, next)
	}
	return nil
}

// Now is the present phase.
func (m *Machine) Now() Phase { return Phase(m.now.Load()) }

// Been reports whether the pipeline was ever in the phase.
func (m *Machine) Been(p Phase) bool { return m.been.Load()>>p&1 == 1 }

// Must returns an error unless p is the present phase. A step that belongs to p begins with it.
func (m *Machine) Must(p Phase) error {
	if now := m.Now(); now != p {
		return fmt.Errorf("%w: a step of %s while %s", errBug, p, now)
	}
	return nil
}
