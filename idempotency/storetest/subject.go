package storetest

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// Subject is a store under test. It may hold other keys already: the suite
// works in scopes of its own.
type Subject struct {
	// Store is required.
	Store storage.Store
	// Operator is the store's, if any; without one its tests are skipped.
	Operator storage.Operator
	// Advance moves the clock of a store with a fake one. Without it the suite
	// waits for real time to pass.
	Advance func(d time.Duration)
	// Skewed returns another client of the same data whose process's clock is
	// off by offset. Nil if the store never looks at that clock.
	Skewed func(offset time.Duration) storage.Store
	// Tolerance is by how much times may be off through rounding by the server,
	// or through clocks of different speed. 0 for a fake clock; 5 ms if 0
	// otherwise.
	Tolerance time.Duration
	// ReadsClockFirst says that the store reads the clock, or what it takes for
	// it, before the step taking effect: the times of a change may be those of
	// any moment since the call began.
	ReadsClockFirst bool
	// MaxResultBytes is what the store can hold; 0 skips the test of the limit.
	MaxResultBytes int
}

func (s Subject) oracle() oracle {
	return oracle{tolerance: s.tolerance(), clockFirst: s.ReadsClockFirst}
}

// scope returns a new scope.
func scope() string { return "t-" + rand.Text()[:12] }

func (s Subject) tolerance() time.Duration {
	if s.Advance == nil && s.Tolerance == 0 {
		return 5 * time.Millisecond
	}
	return s.Tolerance
}

// pass lets d go by on the store's clock.
func (s Subject) pass(t testing.TB, d time.Duration) {
	t.Helper()
	if s.Advance != nil {
		s.Advance(d)
		return
	}
	select {
	case <-time.After(d + s.tolerance()):
	case <-t.Context().Done():
		t.Fatal("the test ended while it waited")
	}
}
