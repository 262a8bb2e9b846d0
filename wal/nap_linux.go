package wal

import (
	"time"

	"golang.org/x/sys/unix"
)

// nap blocks the thread for about d. The runtime's timers round times below a
// millisecond up when nothing else runs, and a millisecond stalls the server.
func nap(d time.Duration) {
	ts := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&ts, nil) // cut short by a signal: as good
}
