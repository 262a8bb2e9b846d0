package unwatched

import (
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Receive reads a socket's bytes, 0 at the end. Without any it fails with
// unix.EAGAIN, instead of waiting.
func Receive(socket int, b []byte) (int, error) {
	return transfer(unix.SYS_RECVFROM, socket, b, unix.MSG_DONTWAIT)
}

// Send writes as much of b as a socket takes. Without room it fails with
// unix.EAGAIN, instead of waiting.
func Send(socket int, b []byte) (int, error) {
	return transfer(unix.SYS_SENDTO, socket, b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

func transfer(call uintptr, socket int, b []byte, flags uintptr) (int, error) {
	for {
		n, _, errno := unix.RawSyscall6(call, uintptr(socket), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags, 0, 0) //nolint:gosec // package unix has no call that is not watched
		if errno == 0 {
			return int(n), nil
		}
		if !errors.Is(errno, unix.EINTR) {
			return 0, errno
		}
	}
}

// Listen sets the events of a socket in an epoll instance.
func Listen(epoll, socket int, events uint32) error {
	event := unix.EpollEvent{Events: events, Fd: int32(socket)}
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epoll), unix.EPOLL_CTL_MOD, uintptr(socket), uintptr(unsafe.Pointer(&event)), 0, 0) //nolint:gosec // as above
	if errno != 0 {
		return errno
	}
	return nil
}

// setTimer makes a timerfd end after d, above 0.
func setTimer(timer int, d time.Duration) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}
	_, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(timer), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0) //nolint:gosec // as above
	if errno != 0 {
		return errno
	}
	return nil
}

// readTimer fails with unix.EAGAIN where the time of a timerfd is not over.
func readTimer(timer int) error {
	var ended uint64
	_, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(timer), uintptr(unsafe.Pointer(&ended)), unsafe.Sizeof(ended)) //nolint:gosec // as above
	if errno != 0 {
		return errno
	}
	return nil
}
