package wal

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-outbox/cdc-outbox/internal/beat"
	"github.com/cdc-outbox/cdc-outbox/internal/lease"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// writeTimeout is how long a standby status update of 39 bytes may wait for the
// socket before the connection counts as dead.
const writeTimeout = 10 * time.Second

// readGrace is how long the reader may go on after a failed write. Before
// closing the connection, a server has often told the reason, still unread in
// the socket.
const readGrace = time.Second

// statusSender sends standby status updates on a connection: on a timer, when
// the server asks, and when a new position is confirmed. statusSender is the
// connection's sole writer between startStatusSender and stop.
type statusSender struct {
	conn      net.Conn
	received  *atomic.Uint64
	confirmed atomic.Uint64
	sent      atomic.Int64  // when the last update was, a lease.Instant; 0: none was
	ended     func()        // called when a write has failed, unless nil
	wake      chan struct{} // capacity 1: wake-ups coalesce
	quit      chan struct{}
	done      sync.WaitGroup
	err       error // of the last write; read after done
}

// startStatusSender starts the sender's goroutine. The confirmed position
// begins at confirmed. Never 0, which would not mean "nothing"
// (docs/internals/DESIGN.md, invariant 2).
func startStatusSender(conn net.Conn, received *atomic.Uint64, confirmed pg.LSN, interval time.Duration, ended func()) *statusSender {
	s := &statusSender{
		conn:     conn,
		received: received,
		ended:    ended,
		wake:     make(chan struct{}, 1),
		quit:     make(chan struct{}),
	}
	s.confirmed.Store(uint64(confirmed))
	s.done.Go(func() { s.run(interval) })
	return s
}

func (s *statusSender) run(interval time.Duration) {
	timer := time.NewTimer(beat.Within(interval))
	defer timer.Stop()
	for {
		requestReply := false
		select {
		case <-s.quit:
			s.err = s.send(false)
			return
		case <-timer.C:
			timer.Reset(beat.Within(interval))
			requestReply = true
		case <-s.wake:
		}
		if s.err = s.send(requestReply); s.err != nil {
			if s.ended != nil {
				s.ended()
			}
			select {
			case <-time.After(readGrace):
			case <-s.quit:
			}
			_ = s.conn.Close() // ends the reader too
			return
		}
	}
}

// confirm raises the confirmed position.
func (s *statusSender) confirm(lsn pg.LSN) {
	for {
		old := s.confirmed.Load()
		if uint64(lsn) <= old {
			return
		}
		if s.confirmed.CompareAndSwap(old, uint64(lsn)) {
			s.poke()
			return
		}
	}
}

// poke asks for an update now. poke never blocks.
func (s *statusSender) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// stop sends a last update, ends the goroutine and returns the last update's
// error. To be called once.
func (s *statusSender) stop() error {
	close(s.quit)
	return s.wait()
}

// wait returns once the goroutine has ended, with the last update's error.
func (s *statusSender) wait() error {
	s.done.Wait()
	return s.err
}

// send writes a standby status update in its CopyData frame (PostgreSQL
// documentation, "Streaming Replication Protocol").
func (s *statusSender) send(requestReply bool) error {
	received := s.received.Load()
	flushed := min(s.confirmed.Load(), received)

	var buf [39]byte
	b := append(buf[:0], frameCopyData)
	b = binary.BigEndian.AppendUint32(b, uint32(len(buf)-1))
	b = append(b, pglogrepl.StandbyStatusUpdateByteID)
	b = binary.BigEndian.AppendUint64(b, received)
	b = binary.BigEndian.AppendUint64(b, flushed)
	b = binary.BigEndian.AppendUint64(b, flushed) // applied
	b = binary.BigEndian.AppendUint64(b, uint64(time.Now().UnixMicro()-postgresEpoch))
	if requestReply {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	began := lease.Now()
	if _, err := s.conn.Write(b); err != nil {
		return err
	}
	s.sent.Store(int64(began))
	return nil
}
