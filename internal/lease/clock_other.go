//go:build !linux

package lease

// Now is the time since the process started, by the clock of package time. On
// some systems it stands still while the machine is suspended, as on Linux it
// would: afterwards, the lease lasts for longer than it should.
func Now() Instant { return sinceStart() }
