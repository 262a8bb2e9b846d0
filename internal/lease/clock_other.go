//go:build !linux

package lease

// Now is the time since the process started, by the clock of package time. On some
// systems, as on Linux, the clock stands still while the machine is suspended:
// afterwards, the lease lasts for too long.
func Now() Instant { return sinceStart() }
