package pipeline

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/stream"
)

// A loss after each repair is repaired ever less often, and other ends of a pipeline
// change nothing about that.
func TestRounds(t *testing.T) {
	lost := fmt.Errorf("%w: %w", stream.ErrToRepair, failure.Lossf("accept it", "the slot is gone"))
	for name, c := range map[string]struct {
		err                error
		ran                time.Duration
		first, tenth, most time.Duration // the tenth at least, all at most
	}{
		"a loss":                    {lost, time.Minute, 200 * time.Millisecond, 30 * time.Second, time.Minute},
		"a loss now and then":       {lost, time.Hour, 200 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond},
		"another instance":          {stream.ErrTakenOver, time.Second, 50 * time.Millisecond, 2 * time.Second, 5 * time.Second},
		"another one, now and then": {stream.ErrTakenOver, time.Minute, 50 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRounds()
			for n := 1; n <= 10; n++ {
				wait, again := r.after(c.err, c.ran)
				if !again || wait <= 0 || wait > c.most || n == 1 && wait > c.first || n == 10 && wait < c.tenth {
					t.Errorf("the wait %d is %s, again %t", n, wait, again)
				}
				if _, again := r.after(stream.ErrTakenOver, 0); !again {
					t.Error("does not stand by")
				}
			}
		})
	}
	for _, err := range []error{nil, errors.New("broken"), failure.Lossf("accept it", "the slot is gone"), fmt.Errorf("%w: %w", stream.ErrBeginAnew, failure.Configf("mend it", "refused"))} {
		if _, again := newRounds().after(err, time.Second); again {
			t.Errorf("begins anew after %v", err)
		}
	}
}
