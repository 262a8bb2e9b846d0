// Package circuit is a circuit breaker. While a service does not answer, the
// breaker lets no call through, except a probe at a time for the service's return.
//
//	closed ──failures──▶ open ──wait──▶ half-open: the next call is the probe
//	   ▲                  ▲                │ it fails
//	   │                  └────────────────┤
//	   └─────────────── it passes ─────────┘
//
// Failures count by the calls' subjects: a single key without an answer, say, does
// not open the breaker, however often asked for.
//
// A cancelled probe makes way for the next call. A call begun while the
// breaker was closed, and ended while not, changes nothing.
package circuit

import "time"

// State is a breaker's state.
type State string

// The states.
const (
	Closed   State = "closed"
	Open     State = "open"
	HalfOpen State = "half-open"
)

// Breaker begins closed. Each starting call is told of by a separate C, and is
// about a subject S. Breaker is not safe for concurrent use.
type Breaker[C, S comparable] struct {
	failures int
	wait     func(n int) time.Duration

	state  State
	failed map[S]struct{} // the subjects of calls that failed in a row, while closed
	opened int            // times in a row
	until  time.Time
	prober *C
}

// New returns a breaker opened by failures about so many subjects in a row; the
// nth time in a row for wait(n).
func New[C, S comparable](failures int, wait func(n int) time.Duration) *Breaker[C, S] {
	return &Breaker[C, S]{failures: failures, wait: wait, state: Closed, failed: map[S]struct{}{}}
}

// State returns the state. An open breaker is half-open when the probe starts.
func (b *Breaker[C, S]) State() State { return b.state }

// Allows tells whether a call may start now.
func (b *Breaker[C, S]) Allows(now time.Time) bool {
	return b.state == Closed || b.prober == nil && !now.Before(b.until)
}

// Starts is told of each call's start.
func (b *Breaker[C, S]) Starts(c C) {
	if b.state != Closed {
		b.state, b.prober = HalfOpen, &c
	}
}

func (b *Breaker[C, S]) probes(c C) bool { return b.prober != nil && *b.prober == c }

// Fails is told that a call was not answered. Fails tells whether the failure
// opens a closed breaker, and for how long; 0 if the call changes nothing.
func (b *Breaker[C, S]) Fails(c C, about S, now time.Time) (opens bool, wait time.Duration) {
	switch {
	case b.state == Closed:
		b.failed[about] = struct{}{}
		if len(b.failed) < b.failures {
			return false, 0
		}
		opens = true
	case !b.probes(c):
		return false, 0
	}
	b.opened++
	wait = b.wait(b.opened)
	b.state, b.prober, b.until = Open, nil, now.Add(wait)
	return opens, wait
}

// Cancelled is told that a call was ended by the caller.
func (b *Breaker[C, S]) Cancelled(c C) {
	if b.probes(c) {
		b.prober = nil
	}
}

// Passes is told that a call was answered. Passes tells whether the answer
// closes the breaker.
func (b *Breaker[C, S]) Passes(c C) (closes bool) {
	closes = b.probes(c)
	if closes || b.state == Closed {
		b.state, b.prober, b.opened = Closed, nil, 0
		clear(b.failed)
	}
	return closes
}
