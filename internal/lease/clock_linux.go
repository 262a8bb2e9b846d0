package lease

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Now is the time since the machine started, with suspensions (CLOCK_BOOTTIME), unlike
// the clock of package time. A virtual machine stopped by its host may not see the
// suspension on any clock.
func Now() Instant {
	var ts unix.Timespec
	// Not watched by the runtime, see package unwatched: Now is asked before each
	// write.
	_, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&ts)), 0) //nolint:gosec // package unix has no call that is not watched
	if errno != 0 {
		return sinceStart()
	}
	return Instant(ts.Nano())
}
