package unwatched

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// napping is whether an unwatched nap is in progress.
var napping atomic.Bool

// Nap blocks the thread for about d, a few milliseconds at most. When nothing else
// runs, the runtime's timers round times below a millisecond up to one.
//
// An unwatched nap keeps one of the runtime's processors (GOMAXPROCS). So there
// is at most one such nap at a time, and none on a single processor: other naps
// are watched. The garbage collector ends a nap, by the signal.
func Nap(d time.Duration) {
	ts := unix.NsecToTimespec(d.Nanoseconds())
	if runtime.GOMAXPROCS(0) == 1 || !napping.CompareAndSwap(false, true) {
		_ = unix.Nanosleep(&ts, nil) // cut short by a signal: as good
		return
	}
	defer napping.Store(false)
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0) //nolint:gosec // package unix has no call that is not watched
}
