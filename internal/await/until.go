package await

import "time"

// patience bounds Until, for slow and busy machines.
const patience = 2 * time.Minute

// Until waits in a test until met, and fails the test if that takes for ever.
func Until(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, what string, met func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !met() {
		select {
		case <-deadline.C:
			t.Fatalf("waited for %s in vain", what)
		case <-poll.C:
		}
	}
}
