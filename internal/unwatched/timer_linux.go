package unwatched

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Timer lets a goroutine wait for a few milliseconds, often. The runtime's own
// timers take up to a millisecond longer when nothing else runs, and a new
// timer wakes the thread waiting in the poller. A single goroutine uses a
// Timer.
type Timer struct {
	file *os.File
	raw  syscall.RawConn
}

// NewTimer returns a Timer, to be closed.
func NewTimer() (*Timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "timer")
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Timer{file, raw}, nil
}

// Wait returns after d, or with an error once the Timer is closed.
func (t *Timer) Wait(d time.Duration) (err error) {
	set := false
	waited := t.raw.Read(func(fd uintptr) bool {
		if !set {
			set = true
			err = setTimer(int(fd), d)
			return err != nil
		}
		err = readTimer(int(fd))
		return !errors.Is(err, unix.EAGAIN)
	})
	return errors.Join(waited, err)
}

// Close ends a wait.
func (t *Timer) Close() error { return t.file.Close() }
