package wal

import (
	"time"

	"golang.org/x/sys/unix"
)

// nap blocks the thread for about d. When nothing else runs, the runtime's
// timers round times below a millisecond up to one, and a whole millisecond
// stalls the server.
func nap(d time.Duration) {
	ts := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&ts, nil) // cut short by a signal: as good
}
