package wal

import (
	"time"
)

const (
	// smallRead is a read that the server could have made larger had we waited.
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
// The rest is for the walsender, which sends every row by itself: a reader that
// is always asleep has to be woken by each send, and waking it costs the
// walsender up to a third of its CPU time. Under TLS there is none: a read there
// returns one record, which is one row, and says nothing about how much more has
// arrived.
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
	if err := p.ctx.Err(); err != nil { // after the deadline: ctx's own must win
		return 0, err
	}
	p.reading.Store(int64(now.Sub(p.opened)))
	n, err := p.conn.Read(b)
	p.reading.Store(0)
	p.lastRead = n
	return n, err
}

// rests tells whether the next read is to wait a moment.
func (p *pacedReader) rests() bool {
	return !p.encrypted && 0 < p.lastRead && p.lastRead < smallRead
}
