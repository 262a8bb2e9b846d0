// Package drain bounds the wait for what is in flight when a connector stops.
//
// Non-goals: stopping anything.
package drain

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// look is how often missing is asked.
	look = 100 * time.Millisecond
	// topicGrace is how long a topic must be missing: a broker that has just
	// come up, or not heard of a new topic, may say so too.
	topicGrace = time.Second
)

var errTimeout = errors.New("errors.drain_timeout has passed")

// Wait returns nil once done is closed, or why it waits no longer: timeout has
// passed, or delivery waits for topics that do not exist, which missing lists
// and a stop does not bring. missing is called from this goroutine.
func Wait(done <-chan struct{}, timeout time.Duration, missing func() []string) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	var absent time.Duration // for so long topics have been missing
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
