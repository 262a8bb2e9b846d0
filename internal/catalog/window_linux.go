package catalog

import (
	"context"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sys/unix"
)

const (
	// smallWindow is the most the server may have under way to us over loopback
	// (tcp(7), TCP_WINDOW_CLAMP).
	smallWindow = 32 << 10
	// smallBuffer is the receive buffer there. The kernel doubles it, and closes
	// the window when the buffer is about full. An open window is not taken back,
	// and a small row takes several times its size of the buffer. So the buffer
	// has to be much larger than the window, or the kernel drops rows, and the
	// server sends them again, after 200 ms at worst (RTO_MIN).
	smallBuffer = 128 << 10
	// smallSegment is the largest segment there. The window has to be several of
	// them: a sender waits for room for a whole segment, by a timer at worst (RFC
	// 9293, 3.8.6.2.1). By default a segment of loopback has 64 KiB.
	smallSegment = 8 << 10
)

// smallWindows wraps a dial function so that connections over TCP loopback have
// a small window.
//
// The walsender sends each row separately. Over loopback, the sender also does the
// receiver's part of the protocol, a third of the walsender's time. While the
// window is closed, rows gather in the server's socket at little cost. Once we
// read they come in large segments, and in our time. Over a network the window
// has to hold everything under way.
func smallWindows(dial pgconn.DialFunc) pgconn.DialFunc {
	// Errors do not matter: a small window only helps.
	shrink := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, smallBuffer)
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, smallWindow)
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, smallSegment)
		})
	}}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if isLoopback(address) {
			return shrink.DialContext(ctx, network, address)
		}
		return dial(ctx, network, address)
	}
}
