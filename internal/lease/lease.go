// Package lease keeps an instance from writing to brokers after it may have lost the
// slot.
//
// PostgreSQL lets a single instance read the slot. Another may have the slot as soon as
// the server takes the first for dead, and the first does not learn of the change while
// suspended, or cut off. Its later writes would stand behind the records of the
// successor, and an older value of a key would be the last. So an instance holds a
// lease that ends before the server could have given the slot away, and renews the
// lease with every sign of still holding the slot.
//
// Invariants:
//
//  1. While the lease is out, no byte is handed to a connection of Conn. The lease
//     is looked at before every writing system call, and not only once for a whole
//     message.
//  2. At the end of a connection, bytes not sent yet by the kernel are taken back, whether
//     the lease, the client or the death of the process has ended the connection. When
//     the lease runs out, all connections end.
//  3. The clock counts while a machine is suspended (see Now).
//
// Non-goals: bytes that have left the machine. A process may also be stopped between
// the look and the system call, some nanoseconds later.
package lease

import (
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/unwatched"
)

// Instant is a time on the clock of Now. The zero Instant is before all others.
type Instant int64

// Never is after every other Instant.
const Never Instant = math.MaxInt64

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant {
	if d > 0 && i > Never-Instant(d) {
		return Never
	}
	return i + Instant(d)
}

// Since returns the time since i.
func Since(i Instant) time.Duration { return time.Duration(Now() - i) }

var started = time.Now()

// sinceStart is the time since the process started, by the clock of package
// time. Not 0.
func sinceStart() Instant { return Instant(time.Since(started)) + 1 }

// errOut is the error of a write without a lease. Kafka's client tries again after
// an error of the system.
var errOut = os.NewSyscallError("the lease is out", syscall.EPERM)

// Lease is the right to write. It may be used from any goroutine. A nil *Lease
// is never out.
//
//	       Set                 runs out
//	ended ─────▶ held ◀──────────────────────▶ out
//	  ▲           │ Renew     Renew, Set        │
//	  └───────────┴─────────── End ─────────────┘
type Lease struct {
	until atomic.Int64 // an Instant; 0: ended
	awake atomic.Int64 // the same in time since started; see conn.may
	out   func()

	mu    sync.Mutex
	timer *time.Timer // ends everything on its way when the lease runs out
	conns map[*conn]struct{}
}

// New returns an ended lease. ranOut is called each time the lease runs out by
// itself.
func New(ranOut func()) *Lease { return &Lease{out: ranOut, conns: make(map[*conn]struct{})} }

// Held reports whether the holder may write now.
func (l *Lease) Held() bool { return l == nil || int64(Now()) < l.until.Load() }

// Renew has the lease last until then, if later than before. An ended lease stays ended:
// the sign for the renewal may be from before the end.
func (l *Lease) Renew(until Instant) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.until.Load(); before != 0 && int64(until) > before {
		l.set(until)
	}
}

// Set begins or changes the lease, until then.
func (l *Lease) Set(until Instant) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(until)
}

func (l *Lease) set(until Instant) {
	l.until.Store(int64(until))
	l.awake.Store(int64(time.Since(started)) + int64(min(until-Now(), Never/2)))
	switch left := time.Duration(until - Now()); {
	case until == Never && l.timer != nil:
		l.timer.Stop()
	case until == Never:
	case l.timer == nil:
		l.timer = time.AfterFunc(left, l.expire)
	default:
		l.timer.Reset(left)
	}
}

// End ends the lease.
func (l *Lease) End() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.until.Store(0)
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	l.abort()
}

// expire is called when the lease should be out. The timer's clock stands still while a
// machine is suspended, so the call is late then; writes are not.
func (l *Lease) expire() {
	l.mu.Lock()
	until := Instant(l.until.Load())
	left := time.Duration(until - Now())
	if left > 0 && until != Never { // renewed since, or the timer was early
		l.timer.Reset(left)
	}
	l.mu.Unlock()
	if until == 0 || left > 0 {
		return
	}
	l.abort()
	l.out()
}

// abort closes all connections, with unsent bytes.
func (l *Lease) abort() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Conn.Close()
	}
	clear(l.conns)
}

// Conn returns c, a connection of package net, without writes while the lease is out.
func (l *Lease) Conn(c net.Conn) net.Conn {
	if l == nil {
		return unwatched.Conn(c)
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // or the kernel would send unacknowledged bytes again for minutes
	}
	guarded := &conn{lease: l}
	guarded.Conn = unwatched.Guarded(c, guarded.may)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[guarded] = struct{}{}
	return guarded
}

type conn struct {
	net.Conn
	lease *Lease
}

// may looks twice. The clock of Now is a system call, and at the end of a system call a
// process is stopped, or another process has a turn: the time read may be old by then.
// The second clock is read without the kernel, right before the writing call.
func (c *conn) may() error {
	if c.lease.Held() && int64(time.Since(started)) < c.lease.awake.Load() {
		return nil
	}
	return errOut
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.lease.mu.Lock()
	delete(c.lease.conns, c)
	c.lease.mu.Unlock()
	return c.Conn.Close()
}
