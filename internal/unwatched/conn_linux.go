package unwatched

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// atOnce is the most bytes an unwatched call copies.
const atOnce = 64 << 10

// conn is a connection of package net, read and written in unwatched calls.
type conn struct {
	net.Conn
	raw syscall.RawConn
	may func() error // nil: always
}

// Conn returns conn with reads and writes not watched. Used in place of conn,
// and closing closes conn. A connection without a socket is returned as it is.
func Conn(of net.Conn) net.Conn { return Guarded(of, nil) }

// Guarded is Conn with writes asking may before each system call, and fail with
// the error.
func Guarded(of net.Conn, may func() error) net.Conn {
	socket, ok := of.(syscall.Conn)
	if !ok {
		return of
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return of
	}
	return &conn{of, raw, may}
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (n int, err error) {
	if len(b) == 0 {
		return c.Conn.Read(b)
	}
	b = b[:min(len(b), atOnce)]
	waited := c.raw.Read(func(fd uintptr) bool {
		n, err = Receive(int(fd), b)
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case waited != nil:
		return 0, c.failed("read", errors.Unwrap(waited))
	case err != nil:
		return 0, c.failed("read", os.NewSyscallError("read", err))
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (n int, err error) {
	if len(b) == 0 || len(b) > atOnce && c.may == nil {
		return c.Conn.Write(b)
	}
	send := Send
	if len(b) > atOnce {
		send = sendWatched
	}
	waited := c.raw.Write(func(fd uintptr) bool {
		for n < len(b) {
			if c.may != nil {
				if err = c.may(); err != nil {
					return true
				}
			}
			var sent int
			sent, err = send(int(fd), b[n:])
			n += sent
			if err != nil {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
		return true
	})
	switch {
	case waited != nil:
		return n, c.failed("write", errors.Unwrap(waited))
	case err != nil:
		return n, c.failed("write", os.NewSyscallError("write", err))
	}
	return n, nil
}

// sendWatched is Send for large writes.
func sendWatched(socket int, b []byte) (int, error) {
	for {
		n, err := unix.Write(socket, b)
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

// failed is the error package net would return.
func (c *conn) failed(op string, err error) error {
	local, remote := c.LocalAddr(), c.RemoteAddr()
	return &net.OpError{Op: op, Net: remote.Network(), Source: local, Addr: remote, Err: err}
}
