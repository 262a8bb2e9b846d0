package stream

import (
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// pulse is a set of positions at a single moment. Several pulses show whether the
// log gets through.
type pulse struct {
	flush     pg.LSN // the end of the server's log, as last seen
	received  pg.LSN
	position  pg.LSN // the tracker's: everything up to there is acked
	confirmed pg.LSN // saved, and then confirmed
	inFlight  int    // events without ack
	dealt     uint64 // events acked so far
	arrived   uint64 // arrived changes of any table, so far
}

// progress tells from pulses whether the server's log gets through, without a look
// for the reason. It outlives sessions: waiting log does not become younger with
// another connection. Not safe for concurrent use.
type progress struct {
	limit time.Duration // see limits.stalled

	last pulse
	log  marks
	// moved is when an event of ours was last taken in or acked, arrived when a
	// change of any table came. Only the first is progress: an event waits behind
	// the changes of other tables.
	moved, arrived time.Time

	acked stage // from received to acked, with nothing in flight
	saved stage // from acked to saved
}

// stage is a part of the way.
type stage struct{ moved time.Time }

// look notes whether the stage has work, and whether it has moved.
func (s *stage) look(now time.Time, work, did bool) {
	if !work || did {
		s.moved = now
	}
}

func (p *progress) stalled(s stage, now time.Time) bool { return now.Sub(s.moved) > p.limit }

// begin notes the begin of a session. The stages' earlier progress is no measure; the
// log keeps its age.
func (p *progress) begin(now time.Time) { p.acked, p.saved = stage{now}, stage{now} }

// see notes a pulse.
func (p *progress) see(now time.Time, is pulse) {
	was := p.last
	if is.dealt != was.dealt || is.inFlight != was.inFlight {
		p.moved = now
	}
	if is.arrived != was.arrived {
		p.arrived = now
	}
	p.log.see(now, is.flush, is.confirmed)
	p.acked.look(now, is.inFlight == 0 && is.position < is.received, is.position != was.position)
	p.saved.look(now, is.confirmed < is.position, is.confirmed != was.confirmed)
	p.last = is
}

// flushed is the end of the server's log, as last seen.
func (p *progress) flushed() pg.LSN { return p.last.flush }

// unconfirmed is how long the server has had unconfirmed log.
func (p *progress) unconfirmed(now time.Time) time.Duration { return p.log.age(now, p.last.confirmed) }

// unread is how long the server has had log not received, perhaps with events of
// ours.
func (p *progress) unread(now time.Time) time.Duration {
	return p.log.age(now, max(p.last.received, p.last.position))
}

// waits is how long the server has had unacked log, and nothing of ours has moved.
func (p *progress) waits(now time.Time) time.Duration {
	return min(p.log.age(now, p.last.position), now.Sub(p.moved))
}

// stall is the reason for a standstill; "": none.
func (p *progress) stall(now time.Time) string {
	is := p.last
	age := func(s stage) time.Duration { return now.Sub(s.moved).Round(time.Second) }
	waits := p.waits(now)
	switch {
	case p.stalled(p.saved, now):
		return fmt.Sprintf("the position %s is acknowledged, but has not been saved and confirmed for %s", is.position, age(p.saved))
	case p.stalled(p.acked, now):
		return fmt.Sprintf("the position has stayed at %s for %s, although nothing is in flight and %s was received", is.position, age(p.acked), is.received)
	case waits > p.limit && now.Sub(p.arrived) <= p.limit:
		return fmt.Sprintf("what was committed in the last %s waits behind changes of other tables, or of what is published already, which the server sends first: its log goes on to %s, and %s is acknowledged",
			waits.Round(time.Second), is.flush, is.position)
	case waits > p.limit:
		return fmt.Sprintf("nothing has arrived from the server or been acknowledged for %s, although its log goes on to %s and only %s is confirmed",
			waits.Round(time.Second), is.flush, is.confirmed)
	}
	return ""
}
