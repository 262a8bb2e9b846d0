package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	// look is how often missing is asked.
	look = 100 * time.Millisecond
	// topicGrace is how long a topic must be missing before it counts. A broker just
	// started, or without news of a new topic, may call the topic missing, too.
	topicGrace = time.Second
)

// hurried bounds the wait of a hurried stop: enough for an answer of servers in reach.
const hurried = 250 * time.Millisecond

// hasteKey is the key of a context's channel, closed by hurry.
type hasteKey struct{}

// WithHaste returns a context for a pipeline. hurry stops nothing, and leaves a stop of
// the pipeline no patience, also a stop under way. hurry may be called again. Another process
// may have the pipeline by now, and waits for the slot.
func WithHaste(ctx context.Context) (with context.Context, hurry func()) {
	called := make(chan struct{})
	return context.WithValue(ctx, hasteKey{}, called), sync.OnceFunc(func() { close(called) })
}

// haste is closed by hurry; nil without WithHaste.
func haste(ctx context.Context) <-chan struct{} {
	called, _ := ctx.Value(hasteKey{}).(chan struct{})
	return called
}

// Patience is the time for the last words of a stop: limit, or less in a hurry.
func Patience(ctx context.Context, limit time.Duration) time.Duration {
	select {
	case <-haste(ctx):
		return min(limit, hurried)
	default:
		return limit
	}
}

// Ending returns a context for the last words of a stop, which ctx does not end: after limit,
// or soon after hurry.
func Ending(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	hurry := haste(ctx)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-ending.Done():
			return
		case <-hurry:
		}
		timer := time.NewTimer(hurried)
		defer timer.Stop()
		select {
		case <-ending.Done():
		case <-timer.C:
			cancel()
		}
	})
	return ending, func() { cancel(); waiting.Wait() }
}

var errTimeout = errors.New("errors.drain_timeout has passed")

// Drain bounds the wait for everything in flight when a connector stops, and stops
// nothing. It returns nil once done is closed, or the reason for giving up: timeout has
// passed, or the delivery waits for missing topics, and no wait would bring them.
// missing lists these topics, on the caller's goroutine. ctx may have ended, and may be
// of WithHaste.
func Drain(ctx context.Context, done <-chan struct{}, timeout time.Duration, missing func() []string) error {
	ending, cancel := Ending(ctx, timeout)
	defer cancel()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	var absent time.Duration // how long topics have been missing
	for {
		select {
		case <-done:
			return nil
		case <-ending.Done():
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
