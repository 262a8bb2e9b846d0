package catalog

import (
	"context"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sys/unix"
)

const (
	// smallWindow is the receive buffer over loopback, or net.core.rmem_max if that is
	// less. The kernel doubles it, and offers the sender half of that (tcp(7),
	// tcp_adv_win_scale).
	smallWindow = 256 << 10
	// smallSegment is the largest segment there. The window has to be several of
	// them: a sender waits for room for a whole one, by a timer at worst (RFC 9293,
	// 3.8.6.2.1). By default a segment of loopback has 64 KiB.
	smallSegment = 16 << 10
)

// smallWindows wraps a dial function so that connections over TCP loopback have a
// small window.
//
// The walsender sends each row by itself. Over loopback, whoever sends also does
// the receiver's part of the protocol, which is a third of the walsender's time.
// While the window is closed, rows gather in the server's socket at little cost.
// Once we read they come in large segments, and in our time. Over a network the
// window has to be what is under way.
func smallWindows(dial pgconn.DialFunc) pgconn.DialFunc {
	// Errors are left: this is help only.
	shrink := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, smallWindow)
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
