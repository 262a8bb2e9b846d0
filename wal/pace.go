package wal

import (
	"time"
)

const (
	// smallRead is the size up to which a read counts as small: after a wait
	// there would have been more to read.
	smallRead = 16 << 10
	// napTime lets small sends of the server gather in the socket.
	napTime = 200 * time.Microsecond
	// deadlineSlack is how stale the read deadline may get: setting it on each
	// read costs more than the read.
	deadlineSlack = time.Second
)

// pacedReader is the Stream as the source of its own frames: it reads the
// connection under a liveness deadline, and after a small read it rests a
// moment before the next.
//
// The rest spares the walsender. It sends every row by itself, and each send
// has to wake a reader that sleeps, which costs the walsender up to a third of
// its CPU time. There is no rest under TLS: a read returns one TLS record,
// which is one row, and does not tell how much more has arrived.
type pacedReader Stream

// Read implements io.Reader.
func (p *pacedReader) Read(b []byte) (int, error) {
	if p.rests() {
		nap(napTime)
	}
	now := time.Now()
	if now.Sub(p.deadlined) > deadlineSlack {
		if err := p.conn.SetReadDeadline(now.Add(p.liveness + deadlineSlack)); err != nil {
			return 0, err
		}
		p.deadlined = now
	}
	if err := p.ctx.Err(); err != nil { // looked at after the deadline was set, so that ctx's own deadline wins
		return 0, err
	}
	p.reading.Store(int64(now.Sub(p.opened)))
	n, err := p.conn.Read(b)
	p.reading.Store(0)
	p.lastRead = n
	return n, err
}

// rests reports whether to wait a moment before the next read.
func (p *pacedReader) rests() bool {
	return !p.encrypted && 0 < p.lastRead && p.lastRead < smallRead
}
