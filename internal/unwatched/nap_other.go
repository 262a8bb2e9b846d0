//go:build !linux

package unwatched

import "time"

// Nap waits for d.
func Nap(d time.Duration) { time.Sleep(d) }
