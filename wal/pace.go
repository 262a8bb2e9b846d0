package wal

import (
	"errors"
	"os"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/unwatched"
)

const (
	// smallRead is the largest size of a small read: after a wait there would have
	// been more to read.
	smallRead = 16 << 10
	// shortNap lets small sends of the server gather in the socket.
	shortNap = 200 * time.Microsecond
	// longNap is the longest nap in a flood over TCP loopback, where rows gather in
	// the server's socket at little cost (package catalog, smallWindows). On a slow
	// machine as much as napBytes takes several milliseconds.
	longNap = 5 * time.Millisecond
	// napBytes is how much may gather during a nap. The server must not have to
	// wait for room.
	napBytes = 192 << 10
	// flood is how long so many bytes take to arrive in a flood.
	flood = 8 * time.Millisecond
	// maxRest bounds Options.Gather: a rest delays the answer to the server.
	maxRest = 100 * time.Millisecond
	// restBytes is how much may gather in the socket during a rest. The server
	// must not have to wait for room.
	restBytes = 32 << 10
	// deadlineSlack is how stale the read deadline may get: setting the deadline
	// on each read costs more than the read.
	deadlineSlack = time.Second
)

// pacedReader is the Stream as the source of its own frames, or of the TLS layer
// above: reads of the socket have a liveness deadline, and a small read is
// followed by a pause.
//
// A nap spares the walsender. The walsender sends every row by itself, and each
// send has to wake a sleeping reader, at a cost of up to a third of its CPU
// time.
//
// A rest spares us. Where transactions trickle in, one wake-up for all coming
// in a few milliseconds costs a fraction of one for each.
type pacedReader Stream

// Read implements io.Reader.
func (p *pacedReader) Read(b []byte) (int, error) {
	switch p.pause() {
	case napping:
		p.nap()
	case resting:
		if err := p.rest(); err != nil {
			return 0, err
		}
	}
	now := time.Now()
	p.reading.Store(int64(now.Sub(p.opened)))
	n, err := p.wait(b, now)
	p.reading.Store(0)
	p.lastRead, p.roomy = n, n < len(b)
	p.sinceNap += n
	now = time.Now()
	p.lastWait, p.readAt = now.Sub(p.readAt), now
	return n, err
}

// wait reads once the server has said something. wait gives up when the server
// has been silent for too long, without an excuse.
func (p *pacedReader) wait(b []byte, now time.Time) (int, error) {
	for {
		if now.Sub(p.deadlined) > deadlineSlack {
			if err := p.conn.SetReadDeadline(now.Add(p.liveness + deadlineSlack)); err != nil {
				return 0, err
			}
			p.deadlined = now
		}
		if err := p.ctx.Err(); err != nil { // looked at after the deadline was set: ctx's own deadline wins
			return 0, err
		}
		n, err := p.socket.Read(b)
		if n > 0 || p.silence == nil || !errors.Is(err, os.ErrDeadlineExceeded) || p.ctx.Err() != nil {
			return n, err
		}
		if p.asked = p.silence(p.ctx, (*Stream)(p).Silent()); p.asked != nil {
			return n, err
		}
		now = time.Now()
	}
}

// pause comes between two reads.
type pause int

const (
	none pause = iota
	napping
	resting
)

// pause decides by the last read.
func (p *pacedReader) pause() pause {
	switch {
	case p.lastRead == 0 || !p.roomy: // there may be more already
		return none
	case p.gather > 0 && p.between() && p.trickles():
		if p.lastWait >= 2*p.gather {
			return none // nothing is likely to come soon
		}
		return resting
	case p.lastRead < smallRead:
		return napping
	}
	return none
}

// nap lets the thread sleep.
func (p *pacedReader) nap() {
	d := p.napTime()
	p.sinceNap, p.napped = 0, p.readAt
	unwatched.Nap(d)
}

// napTime is how long the next nap is. In a flood over loopback, it lasts until
// the server's socket may be full, by the bytes since the last nap began.
func (p *pacedReader) napTime() time.Duration {
	took := napBytes * float64(p.readAt.Sub(p.napped)) / float64(p.sinceNap)
	if !p.loopback || took > float64(flood) {
		return shortNap
	}
	return max(shortNap, min(time.Duration(took), longNap))
}

// between reports whether everything read is whole transactions.
func (p *pacedReader) between() bool { return !p.decoder.open && p.frames.r == p.frames.w }

// trickles reports whether so little arrives that the socket does not fill
// during a rest: by the last read, and by all since the last nap. A flood has
// small reads, too.
func (p *pacedReader) trickles() bool {
	return p.fits(p.lastRead, p.lastWait) && p.fits(p.sinceNap, p.readAt.Sub(p.napped))
}

// fits reports whether the socket holds the bytes of a rest, at the rate of n
// in the time.
func (p *pacedReader) fits(n int, in time.Duration) bool {
	return float64(n)*float64(p.gather) < restBytes*float64(in)
}

// rest waits for the time of Options.Gather.
func (p *pacedReader) rest() error {
	if p.timer == nil {
		timer, err := unwatched.NewTimer()
		if err != nil {
			return err
		}
		p.timer = timer
	}
	return p.timer.Wait(p.gather)
}
