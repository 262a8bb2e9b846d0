//go:build !linux

package unwatched

import "net"

// Conn returns conn.
func Conn(conn net.Conn) net.Conn { return conn }

// Guarded returns conn with writes asking may first, and fail with the error.
func Guarded(conn net.Conn, may func() error) net.Conn {
	if may == nil {
		return conn
	}
	return &guarded{conn, may}
}

type guarded struct {
	net.Conn
	may func() error
}

// piece is how much is written without asking again.
const piece = 64 << 10

// Write implements net.Conn.
func (c *guarded) Write(b []byte) (n int, err error) {
	for {
		if err := c.may(); err != nil {
			local, remote := c.LocalAddr(), c.RemoteAddr()
			return n, &net.OpError{Op: "write", Net: remote.Network(), Source: local, Addr: remote, Err: err}
		}
		sent, err := c.Conn.Write(b[n:min(len(b), n+piece)])
		if n += sent; err != nil || n == len(b) {
			return n, err
		}
	}
}
