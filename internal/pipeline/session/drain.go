package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// look is how often missing is asked.
	look = 100 * time.Millisecond
	// topicGrace is how long a topic must be missing before it counts. A broker just
	// started, or without news of a new topic, may call the topic missing, too.
	topicGrace = time.Second
)

// ErrHurry is the cause of a stop without patience: another process may have the pipeline by now,
// and waits for the slot.
var ErrHurry = errors.New("this process is no member of the fleet now, and another may have the pipeline")

// hurried bounds the wait after ErrHurry.
const hurried = time.Second

// Patience bounds the wait of a stop for events in flight: timeout, or less if the cause of
// ctx's end is ErrHurry.
func Patience(ctx context.Context, timeout time.Duration) time.Duration {
	if errors.Is(context.Cause(ctx), ErrHurry) {
		return min(hurried, timeout)
	}
	return timeout
}

var errTimeout = errors.New("errors.drain_timeout has passed")

// Drain bounds the wait for everything in flight when a connector stops, and stops
// nothing. It returns nil once done is closed, or the reason for giving up: timeout has
// passed, or the delivery waits for missing topics, and no wait would bring them.
// missing lists these topics, on the caller's goroutine.
func Drain(done <-chan struct{}, timeout time.Duration, missing func() []string) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	var absent time.Duration // how long topics have been missing
	for {
		select {
		case <-done:
			return nil
		case <-timer.C:
			return errTimeout
		case <-ticker.C:
		}
		topics := missing()
		if absent += look; len(topics) == 0 {
			absent = 0
		}
		if absent > topicGrace {
			return fmt.Errorf("topic does not exist: %s", strings.Join(topics, ", "))
		}
	}
}
