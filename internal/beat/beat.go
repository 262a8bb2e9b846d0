// Package beat lets the periodic waits of a process end together. A hundred pipelines ask
// their servers every second or two: a process that sleeps in between, and does the work of
// several pipelines at each awakening, takes a fraction of the processor's time.
//
// Invariants:
//
//  1. A wait is never longer than asked for.
//  2. The ends are spread over several instants of the interval, so that servers have no
//     crowd of questions.
//
// Non-goals: one order or one instant for all. Nothing waits for anything else.
package beat

import "time"

// parts is the number of instants in an interval, and so the largest part by which a wait
// is shorter.
const parts = 16

var origin = time.Now()

// Within returns a wait of at most d for something done every d.
func Within(d time.Duration) time.Duration {
	part := d / parts
	if part <= 0 {
		return d
	}
	over := (time.Since(origin) + d) % part
	if over < 0 { // only under a clock of tests
		over += part
	}
	return d - over
}
