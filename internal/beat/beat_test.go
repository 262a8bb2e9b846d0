package beat_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/beat"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func pass(t *testing.T, d time.Duration) {
	t.Helper()
	must.OK(t, backoff.Sleep(t.Context(), d))
}

// Waits begun at any times end at few instants, and last for no longer than asked for. Intervals
// where one is a multiple of the other share their instants.
func TestWaitsEndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = 1600 * time.Millisecond
		ends := make(map[time.Duration]bool) // within the interval
		for range 40_000 {
			pass(t, 123_457*time.Nanosecond)
			for _, d := range []time.Duration{interval, 2 * interval} {
				wait := beat.Within(d)
				if wait > d || wait <= d-d/16 {
					t.Fatalf("a wait of %s for %s", wait, d)
				}
				ends[time.Duration(time.Now().Add(wait).UnixNano())%interval] = true
			}
		}
		if len(ends) != 16 {
			t.Errorf("the waits end at %d instants of an interval", len(ends))
		}
	})
}

// Something done each time at the end of a wait keeps its interval.
func TestIntervalIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pass(t, beat.Within(time.Second))
		began := time.Now()
		for range 100 {
			pass(t, time.Millisecond) // the work
			pass(t, beat.Within(time.Second))
		}
		if took := time.Since(began); took != 100*time.Second {
			t.Errorf("100 times in %s", took)
		}
	})
}

func TestTinyWaitIsKept(t *testing.T) {
	for d := range time.Duration(16) {
		if got := beat.Within(d); got != d {
			t.Errorf("%d instead of %d", got, d)
		}
	}
}
