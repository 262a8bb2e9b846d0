package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sys/unix"

	"github.com/cdc-outbox/cdc-outbox/internal/unwatched"
)

// quietSocket wraps a dial function so that the runtime's poller hears of its
// connections only during a wait for them.
//
// The poller would be told of every single send of the walsender, even without
// a reader waiting, and in the sender's time: as a walsender sends each row
// separately, telling the poller costs a tenth to a quarter of its speed.
func quietSocket(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		s, err := newSocket(conn)
		if err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("take the socket over: %w", err)
		}
		return s, nil
	}
}

// socket is a net.Conn outside the runtime's poller. Reads never block: a read
// without bytes waits for the bell. A write blocks its thread while the socket
// is full; writes are few and small. Like every net.Conn it is safe for
// concurrent use.
type socket struct {
	file          *os.File
	raw           syscall.RawConn // of file
	bell          *bell
	local, remote net.Addr
	write         deadline
	closed        atomic.Bool
}

// newSocket moves conn's connection to a separate descriptor and closes conn,
// taking it off the poller.
func newSocket(conn net.Conn) (*socket, error) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	var dupErr error
	err = raw.Control(func(original uintptr) {
		fd, dupErr = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err := errors.Join(err, dupErr); err != nil {
		return nil, err
	}
	if err := errors.Join(conn.Close(), makeBlocking(fd)); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	bell, err := newBell(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	s := &socket{
		file:   os.NewFile(uintptr(fd), "replication connection"),
		bell:   bell,
		local:  conn.LocalAddr(),
		remote: conn.RemoteAddr(),
	}
	if s.raw, err = s.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, bell.close(), s.file.Close())
	}
	return s, nil
}

// writeTick is the longest delay of a blocked write in noticing its deadline.
const writeTick = 50 * time.Millisecond

func makeBlocking(fd int) error {
	tick := unix.NsecToTimeval(writeTick.Nanoseconds())
	return errors.Join(
		unix.SetNonblock(fd, false),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tick),
	)
}

// Read implements net.Conn.
func (s *socket) Read(b []byte) (int, error) {
	n, err := s.bell.read(b)
	switch {
	case n > 0:
	case s.closed.Load(): // the poller's error for a closed socket has no name
		err = net.ErrClosed
	case err == nil && len(b) > 0:
		err = io.EOF
	}
	return n, err
}

// Write implements net.Conn.
func (s *socket) Write(b []byte) (written int, err error) {
	for written < len(b) {
		if s.write.passed() {
			return written, os.ErrDeadlineExceeded
		}
		n, err := s.send(b[written:])
		if errors.Is(err, unix.EAGAIN) {
			n, err = s.file.Write(b[written:])
		}
		written += max(n, 0)
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			return written, err
		}
	}
	return written, nil
}

// send writes as much as there is room for.
func (s *socket) send(b []byte) (n int, err error) {
	held := s.raw.Write(func(fd uintptr) bool {
		n, err = unwatched.Send(int(fd), b)
		return true
	})
	if held != nil {
		return 0, held
	}
	return n, err
}

// Close implements net.Conn; blocked calls return.
func (s *socket) Close() error {
	s.closed.Store(true)
	_ = s.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	return errors.Join(s.bell.close(), s.file.Close()) // the bell first: its readers use the descriptor
}

// LocalAddr implements net.Conn.
func (s *socket) LocalAddr() net.Addr { return s.local }

// RemoteAddr implements net.Conn.
func (s *socket) RemoteAddr() net.Addr { return s.remote }

// SetDeadline implements net.Conn.
func (s *socket) SetDeadline(t time.Time) error {
	s.write.set(t)
	return s.SetReadDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (s *socket) SetReadDeadline(t time.Time) error { return s.bell.file.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (s *socket) SetWriteDeadline(t time.Time) error { s.write.set(t); return nil }

// deadline is a time that may be set while being read.
type deadline struct{ at atomic.Pointer[time.Time] }

func (d *deadline) set(t time.Time) {
	if t.IsZero() {
		d.at.Store(nil)
		return
	}
	d.at.Store(&t)
}

func (d *deadline) passed() bool {
	t := d.at.Load()
	return t != nil && !time.Now().Before(*t)
}
