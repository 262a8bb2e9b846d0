package catalog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// answerTimeout is how long a server that was asked may say nothing. It is
	// longer than lockTimeout, so a wait for a lock is not taken for a server
	// that does not answer, and shorter than the deadlines of callers, so its
	// error is the one that is seen.
	answerTimeout = 8 * time.Second
	// lockTimeout is how long the server lets a statement of ours wait for a lock.
	lockTimeout = 5 * time.Second
)

// errSilent is wrapped by the error of a connection whose server was silent for
// too long.
var errSilent = errors.New("no answer from PostgreSQL")

// line is a connection with a limit on the server's silence: a read or a write
// waiting longer fails. Deadlines may be set on it too; the earlier one counts.
// pgconn reads only while it waits for an answer or for notifications. So
// whatever it waits for ends, a COMMIT or a close included, even under a
// context without a deadline.
//
// Like every net.Conn it is safe for concurrent use; one goroutine reads.
type line struct {
	net.Conn
	beneath io.Reader // unless nil, read in place of Conn; see Beneath

	mu      sync.Mutex
	silence time.Duration // the limit; 0 for none
	// ask, unless nil, is called instead of giving up on a read: see Patient.
	ask                   func() error
	readBy, writeBy       time.Time // as set by the user; zero for none
	readUntil, writeUntil time.Time // the limit of the call in progress
}

// limited wraps a dial function so that its connections are lines.
func limited(dial pgconn.DialFunc, silence time.Duration) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &line{Conn: conn, silence: silence}, nil
	}
}

// lineOf returns the line beneath a connection, or nil where opened by somebody
// else.
func lineOf(conn net.Conn) *line {
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	l, _ := conn.(*line)
	return l
}

// Beneath makes the TLS layer of a connection of this package read from reader, and returns
// what reader is to read from: the bytes received. It is not called during a read.
func Beneath(conn *tls.Conn, reader io.Reader) io.Reader {
	l := lineOf(conn)
	l.beneath = reader
	return received{l}
}

// received reads beneath the TLS layer.
type received struct{ *line }

func (r received) Read(b []byte) (int, error) { return r.receive(b) }

// Unlimited ends the limit: the caller sets the deadlines. It is not called
// during a read or write.
func Unlimited(conn net.Conn) error {
	l := lineOf(conn)
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silence, l.readUntil, l.writeUntil = 0, time.Time{}, time.Time{}
	return errors.Join(l.Conn.SetReadDeadline(l.readBy), l.Conn.SetWriteDeadline(l.writeBy))
}

// Read implements net.Conn.
func (l *line) Read(b []byte) (int, error) {
	if l.beneath != nil {
		return l.beneath.Read(b)
	}
	return l.receive(b)
}

// receive reads from Conn.
func (l *line) receive(b []byte) (int, error) {
	for {
		if err := l.begin(&l.readUntil, l.readBySet, l.Conn.SetReadDeadline); err != nil {
			return 0, err
		}
		n, err := l.Conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		silent, ask := l.exceeded(l.readBySet)
		if silent == nil {
			return n, err
		}
		if ask == nil {
			return n, silent
		}
		if err := ask(); err != nil {
			silent.asked = err
			return n, silent
		}
	}
}

// Write implements net.Conn.
func (l *line) Write(b []byte) (int, error) {
	if err := l.begin(&l.writeUntil, l.writeBySet, l.Conn.SetWriteDeadline); err != nil {
		return 0, err
	}
	n, err := l.Conn.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if silent, _ := l.exceeded(l.writeBySet); silent != nil {
			return n, silent
		}
	}
	return n, err
}

func (l *line) readBySet() time.Time  { return l.readBy }
func (l *line) writeBySet() time.Time { return l.writeBy }

// begin sets the deadline at the beginning of a read or write.
func (l *line) begin(until *time.Time, by func() time.Time, set func(time.Time) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.silence == 0 {
		return nil
	}
	*until = time.Now().Add(l.silence)
	return set(earlier(by(), *until))
}

// exceeded returns the error of a passed deadline: that of a silent server, or
// nil if the user's own deadline has passed.
func (l *line) exceeded(by func() time.Time) (silent *silentError, ask func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own := by(); l.silence == 0 || !own.IsZero() && !time.Now().Before(own) {
		return nil, nil
	}
	return &silentError{limit: l.silence}, l.ask
}

// SetDeadline implements net.Conn.
func (l *line) SetDeadline(t time.Time) error {
	return errors.Join(l.SetReadDeadline(t), l.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (l *line) SetReadDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readBy = t
	return l.Conn.SetReadDeadline(earlier(t, l.readUntil))
}

// SetWriteDeadline implements net.Conn.
func (l *line) SetWriteDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writeBy = t
	return l.Conn.SetWriteDeadline(earlier(t, l.writeUntil))
}

// earlier returns the earlier of two deadlines; zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// silentError is errSilent with the length of the silence. It is no timeout in
// the sense of net.Error: after one, pgconn would take the connection for
// usable.
type silentError struct {
	limit time.Duration
	asked error // why the wait ended, where the server was asked
}

func (e *silentError) Error() string {
	text := fmt.Sprintf("%v for %s", errSilent, e.limit)
	if e.asked != nil {
		text += ", and asked beside: " + e.asked.Error()
	}
	return text
}

func (e *silentError) Unwrap() error { return errSilent }
