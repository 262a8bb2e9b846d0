package identity

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// margin is the time between a value's renewal and end, or else half of the
// value's life, where shorter.
const margin = 5 * time.Minute

// patience is the share of the time left to a value until a source without an answer
// is asked again.
const patience = 4

// failureCounts is the pause after an error, so that many connections do not
// wait for a silent source after each other.
const failureCounts = time.Second

// kept holds a value until shortly before the end. Several goroutines may use
// kept; the first asks, and the others wait for the answer.
type kept[T any] struct {
	// ask returns a value with the end; a value without end is not kept.
	ask func(ctx context.Context) (T, time.Time, error)
	// now is the clock.
	now func() time.Time

	turn    chan struct{} // holds a token while nobody asks
	value   T
	ends    time.Time
	renew   time.Time
	failure error
	failed  time.Time
	source  string // of value and failure
}

func newKept[T any](ask func(context.Context) (T, time.Time, error), now func() time.Time) *kept[T] {
	k := &kept[T]{ask: ask, now: now, turn: make(chan struct{}, 1)}
	k.turn <- struct{}{}
	return k
}

// get returns the value, new where needed. A change of source drops the value.
func (k *kept[T]) get(ctx context.Context, source string) (value T, err error) {
	select {
	case <-k.turn:
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
	defer func() { k.turn <- struct{}{} }()
	if source != k.source {
		*k = kept[T]{ask: k.ask, now: k.now, turn: k.turn, source: source}
	}
	if k.now().Before(k.renew) {
		return k.value, nil
	}
	if err = k.failure; err == nil || k.now().Sub(k.failed) >= k.again() {
		err = k.refresh(ctx)
	}
	if err != nil && !k.now().Before(k.ends) {
		return value, err
	}
	return k.value, nil
}

// again is the wait after a failure. A value in use makes the wait longer: each question to a
// silent source holds a connection back.
func (k *kept[T]) again() time.Duration {
	return min(max(failureCounts, k.ends.Sub(k.failed)/patience), answerTimeout)
}

// forget drops the same value, unless somebody asks for another already.
func (k *kept[T]) forget(same func(T) bool) {
	select {
	case <-k.turn:
	default:
		return
	}
	defer func() { k.turn <- struct{}{} }()
	if same(k.value) {
		k.ends, k.renew = time.Time{}, time.Time{}
	}
}

func (k *kept[T]) refresh(ctx context.Context) error {
	asked, limit := k.now(), answerTimeout
	if asked.Before(k.ends) {
		limit = earlyTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w within %s", errNoAnswer, limit))
	defer cancel()
	value, ends, err := k.ask(ctx)
	if err != nil {
		if ctx.Err() == nil || errors.Is(context.Cause(ctx), errNoAnswer) { // else the caller gave up
			k.failure, k.failed = err, k.now()
		}
		return err
	}
	k.value, k.ends, k.renew, k.failure = value, ends, time.Time{}, nil
	if left := ends.Sub(asked); left > 0 {
		k.renew = ends.Add(-min(margin, left/2))
	}
	return nil
}
