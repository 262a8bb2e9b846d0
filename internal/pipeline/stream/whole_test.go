package stream

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A reader that is to stop has the time to read its transaction to the end, and no more.
func TestUntilWhole(t *testing.T) {
	errStop := errors.New("stop")
	for name, c := range map[string]struct {
		within, failed bool
		took           time.Duration
	}{
		"between transactions": {false, false, lull},
		"within one":           {true, false, wholePatience},
		"after a failure":      {true, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				w := untilWhole(ctx, func() bool { return !c.failed })
				defer w.release()
				if w.at(c.within) || w.at(false) || w.at(c.within) {
					t.Error("stops before it is to")
				}
				cancel(errStop)
				synctest.Wait()
				if w.Err() != nil && !c.failed || w.at(c.within) == c.within {
					t.Errorf("just after: %v", w.Err())
				}
				began := time.Now()
				<-w.Done()
				if took := time.Since(began); took != c.took || context.Cause(w) != errStop { // in fake time
					t.Errorf("ended after %s with %v, want %s", took, context.Cause(w), c.took)
				}
				if !w.at(false) {
					t.Error("goes on after its transaction")
				}
			})
		})
	}
}

// A reader that ends by itself leaves nothing behind.
func TestUntilWholeIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		patient := func() bool { return true }
		untilWhole(ctx, patient).release()
		w := untilWhole(ctx, patient)
		w.at(true)
		cancel()
		synctest.Wait()
		w.release()
		synctest.Wait()
		if w.Err() == nil {
			t.Error("it has not ended")
		}
	})
}
