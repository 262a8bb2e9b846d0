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
		within bool
		took   time.Duration
	}{
		"between transactions": {false, lull},
		"within one":           {true, wholePatience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				w := untilWhole(ctx)
				defer w.release()
				if w.at(c.within) || w.at(false) || w.at(c.within) {
					t.Error("stops before it is to")
				}
				cancel(errStop)
				synctest.Wait()
				if w.Err() != nil || w.at(c.within) == c.within {
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
		untilWhole(ctx).release()
		w := untilWhole(ctx)
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
