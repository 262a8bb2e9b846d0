package consumer

import (
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
)

// breaker keeps all lanes from a store that cannot be asked, but for one at a
// time that tries whether it can. It is pure but for the waits' jitter; the
// scheduler's lock guards it.
//
//	closed ──unavailable──▶ open ──wait──▶ the next lane is the prober
//	   ▲                      ▲                │ unavailable: longer wait
//	   │                      └────────────────┤
//	   └── its handler starts, or it ends ─────┘
//
// A prober that was cut off makes way for the next.
type breaker struct {
	waits    backoff.Range
	open     bool
	until    time.Time
	prober   *lane
	failures int
}

// allows reports whether a lane may start now.
func (b *breaker) allows(now time.Time) bool {
	return !b.open || b.prober == nil && !now.Before(b.until)
}

// starts is told of each lane that starts.
func (b *breaker) starts(l *lane) {
	if b.open {
		b.prober = l
	}
}

// fails is told that a lane found the store unavailable. It reports whether
// the breaker opens, and the wait until the next try; 0 if that is underway or
// was announced before.
func (b *breaker) fails(l *lane, now time.Time) (opens bool, wait time.Duration) {
	if b.open && b.prober != l {
		return false, 0 // it started before the breaker opened
	}
	opens = !b.open
	b.open, b.prober = true, nil
	b.failures++
	wait = b.waits.Wait(b.failures)
	b.until = now.Add(wait)
	return opens, wait
}

// cancelled is told that a lane was cut off before the store could answer.
func (b *breaker) cancelled(l *lane) {
	if b.prober == l {
		b.prober = nil
	}
}

// passes is told that a lane reached the store. It reports whether the breaker
// closes.
func (b *breaker) passes(l *lane) bool {
	if !b.open || b.prober != l {
		return false
	}
	b.open, b.prober, b.failures = false, nil, 0
	return true
}
