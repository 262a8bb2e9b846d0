package stream

import (
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// pulse is a set of positions at one moment. Several of them show whether the
// log gets through.
type pulse struct {
	flush     pg.LSN // the end of the server's log, as last seen
	received  pg.LSN
	position  pg.LSN // the tracker's: everything up to it is acked
	confirmed pg.LSN // saved, and then confirmed
	inFlight  int    // events without ack
	handled   uint64 // changes that were taken in, and events that were acked, so far
}

// progress tells from pulses whether the server's log gets through. It does not
// look for the reason. Not safe for concurrent use.
type progress struct {
	limit time.Duration // see limits.stalled

	last pulse
	mark pg.LSN // the oldest position that is not confirmed yet
	// marked is when the server had reached mark.
	marked time.Time

	whole stage // from the server's log to a confirmed position
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

// begin starts anew, as on a new connection.
func (p *progress) begin(now time.Time) {
	*p = progress{limit: p.limit, marked: now, whole: stage{now}, acked: stage{now}, saved: stage{now}}
}

// see notes a pulse.
func (p *progress) see(now time.Time, is pulse) {
	was := p.last
	saved := is.confirmed != was.confirmed
	p.whole.look(now, is.confirmed < is.flush, saved || is.handled != was.handled)
	p.acked.look(now, is.inFlight == 0 && is.position < is.received, is.position != was.position)
	p.saved.look(now, is.confirmed < is.position, saved)
	if is.confirmed >= p.mark {
		p.mark, p.marked = is.flush, now
	}
	p.last = is
}

// unconfirmed is how long the server has had log that is not confirmed.
func (p *progress) unconfirmed(now time.Time) time.Duration {
	if p.last.confirmed >= p.mark {
		return 0
	}
	return now.Sub(p.marked)
}

// stall says what stands still; "" if nothing does.
func (p *progress) stall(now time.Time) string {
	is := p.last
	age := func(s stage) time.Duration { return now.Sub(s.moved).Round(time.Second) }
	switch {
	case p.stalled(p.saved, now):
		return fmt.Sprintf("the position %s is acknowledged, but has not been saved and confirmed for %s", is.position, age(p.saved))
	case p.stalled(p.acked, now):
		return fmt.Sprintf("the position has stayed at %s for %s, although nothing is in flight and %s was received", is.position, age(p.acked), is.received)
	case p.stalled(p.whole, now):
		return fmt.Sprintf("nothing has arrived from the server or been acknowledged for %s, although its log goes on to %s and only %s is confirmed",
			age(p.whole), is.flush, is.confirmed)
	}
	return ""
}
