package storetest

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// Subject is a store under test, perhaps with other keys already: the suite
// works in separate scopes.
type Subject struct {
	// Store is required.
	Store storage.Store
	// Operator is the store's, if any; otherwise the operator's tests are skipped.
	Operator storage.Operator
	// Advance moves the store's fake clock. Without Advance the suite waits for
	// real time to pass.
	Advance func(d time.Duration)
	// Skewed returns another client of the same data, in a process with the clock
	// off by offset. Nil if the store never looks at a client's clock.
	Skewed func(offset time.Duration) storage.Store
	// Tolerance is by how much times may be off through rounding by the server,
	// or through clocks of different speed. 0 for a fake clock; 5 ms if 0
	// otherwise.
	Tolerance time.Duration
	// ReadsClockFirst: the store reads the clock, or a substitute, before the step
	// taking effect. The times of a change may be of any moment since the call
	// began.
	ReadsClockFirst bool
	// MaxResultBytes is the store's limit; 0 skips the test of the limit.
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
