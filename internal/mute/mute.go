// Package mute keeps a Kafka client from brokers that take connections and say
// nothing.
package mute

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// firstAnswer is how long a broker may take for its first answer on a
	// connection. It is about versions, and needs no disk and no other broker.
	firstAnswer = 3 * time.Second
	// muteFor is how long a broker that did not give it is not connected to.
	muteFor = 5 * time.Second
)

// DialFunc is the type of kgo.Dialer's argument.
type DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// Dialer returns dial without the brokers that take connections and then say
// nothing: they are suspended or just starting, or something on the way swallows
// what is sent. A client of franz-go waits ten seconds for each answer of such a
// one. It asks brokers at random where partitions have gone, and asks the same one
// again, so that it may take minutes to find the new leaders. So a broker without
// a first answer is refused here for five seconds, and the client asks the others.
func Dialer(dial DialFunc) DialFunc {
	m := &mutes{until: make(map[string]time.Time)}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if m.has(addr) {
			// The client tells by the kind of this error that it was not connected.
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError(addr+" did not answer a moment ago", syscall.EHOSTDOWN)}
		}
		conn, err := dial(ctx, network, addr)
		if netErr, ok := errors.AsType[net.Error](err); ok && netErr.Timeout() && ctx.Err() == nil {
			m.add(addr)
		}
		if err != nil {
			return nil, err
		}
		return &unheard{Conn: conn, mute: func() { m.add(addr) }}, nil
	}
}

// mutes are the brokers that are not connected to.
type mutes struct {
	mu    sync.Mutex
	until map[string]time.Time // by address
}

func (m *mutes) has(addr string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Before(m.until[addr])
}

func (m *mutes) add(addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.until[addr] = time.Now().Add(muteFor)
}

// unheard is a connection whose first answer has to come soon. mute is called if
// it does not.
type unheard struct {
	net.Conn
	mute  func()
	heard atomic.Bool
	limit atomic.Int64 // of the first answer, in Unix nanoseconds; 0: nobody waits for it yet
}

// SetReadDeadline implements net.Conn.
func (c *unheard) SetReadDeadline(t time.Time) error {
	if c.heard.Load() {
		return c.Conn.SetReadDeadline(t)
	}
	c.limit.CompareAndSwap(0, time.Now().Add(firstAnswer).UnixNano())
	if limit := time.Unix(0, c.limit.Load()); t.IsZero() || t.After(limit) {
		t = limit
	}
	return c.Conn.SetReadDeadline(t)
}

// Read implements net.Conn.
func (c *unheard) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	switch {
	case n > 0:
		c.heard.Store(true)
	case !c.heard.Load() && errors.Is(err, os.ErrDeadlineExceeded) && time.Now().UnixNano() >= c.limit.Load():
		c.mute()
	}
	return n, err
}
