package stream

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A stopping reader has the time to read its transaction to the end, and no more.
func TestUntilWhole(t *testing.T) {
	errStop := errors.New("stop")
	for name, c := range map[string]struct {
		within         bool
		patience, took time.Duration
	}{
		"between transactions": {false, time.Minute, readPause},
		"within one":           {true, time.Minute, time.Minute},
		"without patience":     {true, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				w := untilWhole(ctx, func() time.Duration { return c.patience })
				defer w.release()
				if w.at(c.within) || w.at(false) || w.at(c.within) {
					t.Error("stops before it is to")
				}
				cancel(errStop)
				synctest.Wait()
				if w.Err() != nil && c.patience > 0 || w.at(c.within) == c.within {
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

// A reader ending by itself leaves nothing behind.
func TestUntilWholeIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		patience := func() time.Duration { return time.Minute }
		untilWhole(ctx, patience).release()
		w := untilWhole(ctx, patience)
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

// A stop in the middle of a transaction reads to the end, and repeats nothing. If the rest
// does not come, or others take over, the log says so.
func TestStopInTheMiddleOfATransaction(t *testing.T) {
	const text = "stopped in the middle of a transaction"
	for name, c := range map[string]struct {
		patience         time.Duration
		hurried, repeats bool
	}{
		"the rest comes":           {patience, false, false},
		"the rest does not come":   {time.Millisecond, false, true},
		"others wait for the slot": {patience, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			d.limits.whole = c.patience
			d.opts.MaxBufferedBytes = 200 << 10
			d.gate.hold()
			i := d.run().streams()
			warned := func() bool { return i.logs.FilterMessageSnippet(text).Len() > 0 }
			d.insert(5000, 5000)
			i.full()
			if c.hurried {
				i.hurry()
			}
			i.cancel()
			if c.repeats {
				eventually(t, "the warning", warned)
			}
			d.gate.open()
			i.stop()
			if warned() != c.repeats {
				t.Errorf("warned: %v", warned())
			}
			next := d.run().streams()
			d.last()
			next.stop()
			if c.repeats {
				d.wantAll()
			} else {
				d.wantOnce()
			}
		})
	}
}
