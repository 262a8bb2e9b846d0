package unwatched

import (
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// The end of one wait is not that of the next.
func TestTimerIsNeverEarly(t *testing.T) {
	timer := must.Get(NewTimer())(t)
	defer timer.Close()
	for _, d := range []time.Duration{time.Millisecond, 3 * time.Millisecond, time.Microsecond, 2 * time.Millisecond} {
		began := time.Now()
		must.OK(t, timer.Wait(d))
		if took := time.Since(began); took < d {
			t.Errorf("waited for %s, not %s", took, d)
		}
	}
}
