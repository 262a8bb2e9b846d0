package broker

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// firstAnswer is a broker's time for the connection, and again for the first
	// answer. The request is about versions, and needs no disk and no other
	// broker.
	firstAnswer = 3 * time.Second
	// longestAnswer is the longest such time. A client of franz-go waits ten seconds.
	longestAnswer = 9 * time.Second
	// avoidedFor is how long a broker is avoided after a silence.
	avoidedFor = 5 * time.Second
	// forgetAfter is how long a broker's need of more time is remembered.
	forgetAfter = 10 * time.Minute
)

// DialFunc is the type of kgo.Dialer's argument.
type DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// Dialer returns dial without the brokers that take connections and then say
// nothing: they are suspended or just starting, or something on the way
// swallows everything sent. A client of franz-go waits ten seconds for each
// answer of such a broker. The client asks brokers at random for new leaders, and
// may ask the same broker again, for minutes. So a broker without a first answer
// is refused here for five seconds, and the client asks the others.
//
// A broker may also be busy or far away, and slow each time. So after each
// silence it has more time, and less again after a quick answer.
//
// A name may have several addresses. Each has a silence of its own, and silent
// addresses come behind the others: dial connects to Address.
//
// All clients of the process share the knowledge of silences: a client that gives
// up and begins anew would never reach the time needed by a slow broker.
func Dialer(dial DialFunc) DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		able := silences.answering(addresses(ctx, addr))
		if len(able) == 0 {
			// By the kind of the error the client knows that it was not connected.
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError(addr+" did not answer a moment ago", syscall.EHOSTDOWN)}
		}
		return race(ctx, able, func(ctx context.Context, address string) (net.Conn, error) {
			return listen(ctx, dial, network, addr, address)
		})
	}
}

// listen connects to one address of a broker.
func listen(ctx context.Context, dial DialFunc, network, addr, address string) (net.Conn, error) {
	patience, dialled := silences.patience(address), time.Now()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := dial(limited, network, addr)
	if netErr, ok := errors.AsType[net.Error](err); ok && netErr.Timeout() && ctx.Err() == nil {
		silences.add(address)
	}
	if err != nil {
		return nil, err
	}
	return &unheard{
		Conn: conn, patience: patience,
		silent:   func() { silences.add(address) },
		answered: func() { silences.answered(address, time.Since(dialled)) },
	}, nil
}

var silences = unresponsive{brokers: make(map[string]silence)}

// unresponsive are the brokers without an answer in time.
type unresponsive struct {
	mu      sync.Mutex
	brokers map[string]silence // by address
}

// silence is the state of a broker since the last quick answer.
type silence struct {
	until    time.Time     // avoided until then
	patience time.Duration // afterwards
}

// patience is the broker's time for an answer.
func (u *unresponsive) patience(addr string) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if s, ok := u.brokers[addr]; ok {
		return s.patience
	}
	return firstAnswer
}

func (u *unresponsive) add(addr string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(u.brokers, func(_ string, s silence) bool { return now.Sub(s.until) > forgetAfter })
	s, ok := u.brokers[addr]
	if !ok {
		s.patience = firstAnswer
	}
	if !now.Before(s.until) { // else another connection met the same silence
		u.brokers[addr] = silence{now.Add(avoidedFor), min(2*s.patience, longestAnswer)}
	}
}

// answered notes the time the broker took.
func (u *unresponsive) answered(addr string, took time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if took < firstAnswer {
		delete(u.brokers, addr)
	}
}

// unheard is a connection before the first answer. If the answer comes in time,
// answered is called, otherwise silent.
type unheard struct {
	net.Conn
	patience         time.Duration
	silent, answered func()
	heard            atomic.Bool
	limit            atomic.Pointer[time.Time] // of the first answer; nil: nobody waits yet
}

// SetReadDeadline implements net.Conn.
func (c *unheard) SetReadDeadline(t time.Time) error {
	if c.heard.Load() {
		return c.Conn.SetReadDeadline(t)
	}
	first := time.Now().Add(c.patience)
	c.limit.CompareAndSwap(nil, &first)
	if limit := *c.limit.Load(); t.IsZero() || t.After(limit) {
		t = limit
	}
	return c.Conn.SetReadDeadline(t)
}

// Read implements net.Conn.
func (c *unheard) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	switch {
	case n > 0:
		if !c.heard.Swap(true) {
			c.answered()
		}
	case !c.heard.Load() && errors.Is(err, os.ErrDeadlineExceeded) && c.late():
		c.silent()
	}
	return n, err
}

// late reports whether the first answer is overdue.
func (c *unheard) late() bool {
	limit := c.limit.Load()
	return limit != nil && !time.Now().Before(*limit)
}
