package catalog

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cdc-outbox/cdc-outbox/internal/unwatched"
)

// bell reads a socket, and waits for bytes in the runtime's poller, which hears
// of the socket only during the wait.
//
// It is an epoll instance of a single socket, itself in the runtime's (epoll
// instances may be nested: epoll(7)). It is armed for a wait, and rings once. A
// thread blocked in the socket would be woken as well, but the runtime watches
// such a thread, at a cost of some thousand wake-ups a second.
type bell struct {
	socket int
	file   *os.File // the epoll instance
	raw    syscall.RawConn
	armed  bool
}

func newBell(socket int) (*bell, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		unix.SetNonblock(fd, true), // otherwise os.NewFile leaves fd out of the poller
		unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, socket, &unix.EpollEvent{}),
	)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	b := &bell{socket: socket, file: os.NewFile(uintptr(fd), "replication connection's epoll")}
	if b.raw, err = b.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, b.file.Close())
	}
	return b, nil
}

// read reads present bytes, or waits for bytes until the deadline of the bell's
// file. 0 means the end.
func (b *bell) read(p []byte) (n int, err error) {
	waited := b.raw.Read(func(epoll uintptr) bool {
		if b.armed {
			b.armed = false
			if err = unwatched.Listen(int(epoll), b.socket, 0); err != nil {
				return true
			}
		}
		if n, err = unwatched.Receive(b.socket, p); !errors.Is(err, unix.EAGAIN) {
			return true
		}
		b.armed = true
		if err = unwatched.Listen(int(epoll), b.socket, unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLONESHOT); err != nil {
			return true
		}
		// Bytes from before may not ring: the kernel tells the outer instance
		// nothing of a socket already on the inner instance's list.
		n, err = unwatched.Receive(b.socket, p)
		return !errors.Is(err, unix.EAGAIN)
	})
	if waited != nil {
		return 0, waited
	}
	return max(n, 0), err
}

// close ends a waiting read, and returns once no read uses the socket.
func (b *bell) close() error { return b.file.Close() }
