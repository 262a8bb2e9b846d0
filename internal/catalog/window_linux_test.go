package catalog

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// errElsewhere is the error of a dial function not to be asked for loopback.
var errElsewhere = errors.New("dialled elsewhere")

func elsewhere(context.Context, string, string) (net.Conn, error) { return nil, errElsewhere }

// The window is small over TCP loopback, and there alone.
func TestWindowIsSmallOverLoopback(t *testing.T) {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	conn := must.Get(smallWindows(elsewhere)(t.Context(), "tcp", listener.Addr().String()))(t)
	defer conn.Close()
	raw := must.Get(conn.(syscall.Conn).SyscallConn())(t)
	limit := must.Get(os.ReadFile("/proc/sys/net/core/rmem_max"))(t)
	largest := must.Get(strconv.Atoi(strings.TrimSpace(string(limit))))(t)
	must.OK(t, raw.Control(func(fd uintptr) {
		if got := must.Get(unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF))(t); got != 2*min(smallBuffer, largest) {
			t.Errorf("a buffer of %d bytes; want %d", got, 2*min(smallBuffer, largest))
		}
		if got := must.Get(unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP))(t); got > smallWindow {
			t.Errorf("a window of %d bytes; want %d at most", got, smallWindow)
		}
		if got := must.Get(unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG))(t); got > smallSegment {
			t.Errorf("segments of %d bytes; want %d at most", got, smallSegment)
		}
	}))
	for network, address := range map[string]string{"tcp": "192.0.2.1:5432", "unix": filepath.Join(t.TempDir(), ".s.PGSQL.5432")} {
		if _, err := smallWindows(elsewhere)(t.Context(), network, address); !errors.Is(err, errElsewhere) {
			t.Errorf("%s was not left to the dial function: %v", address, err)
		}
	}
}

// Bytes sent while the window is closed arrive whole.
func TestWindowThatClosesLosesNothing(t *testing.T) {
	const row, rows = 700, 20_000
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	conn := must.Get(quietSocket(smallWindows(elsewhere))(t.Context(), "tcp", listener.Addr().String()))(t)
	peer := must.Get(listener.Accept())(t)
	var sending sync.WaitGroup
	defer sending.Wait()
	defer conn.Close()
	begun := make(chan struct{})
	sending.Go(func() {
		defer peer.Close()
		for i := range rows {
			if _, err := peer.Write(make([]byte, row)); err != nil {
				t.Error(err)
				return
			}
			if i == smallBuffer/row { // more than fits
				close(begun)
			}
		}
	})
	<-begun
	if got := len(must.Get(io.ReadAll(conn))(t)); got != rows*row {
		t.Errorf("%d bytes arrived of %d", got, rows*row)
	}
}
