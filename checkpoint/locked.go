package checkpoint

import (
	"sync"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Locked is a Tracker for several goroutines: a single reader of the stream (Add, Seal,
// Keepalive), and any number that ack (Done) or look. No method blocks for longer than
// another takes.
type Locked struct {
	mu sync.Mutex
	t  *Tracker
}

// NewLocked returns a tracker with everything up to start done.
func NewLocked(start pg.LSN) *Locked { return &Locked{t: NewTracker(start)} }

// Add is Tracker.Add.
func (l *Locked) Add() Ticket {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.t.Add()
}

// Seal is Tracker.Seal.
func (l *Locked) Seal(end pg.LSN, landmark Landmark) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.t.Seal(end, landmark)
}

// Keepalive is Tracker.Keepalive.
func (l *Locked) Keepalive(pos pg.LSN) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.t.Keepalive(pos)
}

// Done is Tracker.Done.
func (l *Locked) Done(k Ticket, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t.Done(k, n)
}

// Position is Tracker.Position.
func (l *Locked) Position() pg.LSN {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.t.Position()
}

// Progress is Tracker.Position and Tracker.Landmark at the same moment.
func (l *Locked) Progress() (pg.LSN, Landmark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.t.Position(), l.t.Landmark()
}

// Reach is Tracker.Position and Tracker.Read at the same moment.
func (l *Locked) Reach() (position, read pg.LSN) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.t.Position(), l.t.Read()
}

// After is Tracker.After.
func (l *Locked) After(k Ticket, n int) (position pg.LSN, landmark Landmark, whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.t.After(k, n)
}

// InFlight is Tracker.InFlight.
func (l *Locked) InFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.t.InFlight()
}
