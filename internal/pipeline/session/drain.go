package session

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// look is how often missing is asked.
	look = 100 * time.Millisecond
	// topicGrace is how long a topic must be missing until that counts. A
	// broker that has just started, or has not heard of a new topic yet, may
	// call it missing too.
	topicGrace = time.Second
)

var errTimeout = errors.New("errors.drain_timeout has passed")

// Drain bounds the wait for everything in flight when a connector stops; it
// does not stop that itself. It returns nil once done is closed, or why it gave
// up if timeout has passed, or if delivery waits for topics that do not exist:
// no wait would bring them. missing lists those topics; it is called from this
// goroutine.
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
