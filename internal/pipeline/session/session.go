// Package session keeps a source connected to its server: one session after the
// other, until there is a reason that a new one does not remove. It also has
// what any source is at the time (Role), and bounds its wait at a stop (Drain).
//
// Non-goals: what a session does.
package session

import (
	"context"
	"errors"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// reset: a session that lasted this long starts the backoff anew.
const reset = 30 * time.Second

// waits are those between sessions.
var waits = backoff.Range{First: 100 * time.Millisecond, Longest: 10 * time.Second}

// Metrics is told what any source does. Its methods are called from several
// goroutines and must not block.
type Metrics interface {
	// Reconnected counts new connections after a broken one; side is postgres,
	// kafka or checkpoint.
	Reconnected(side string)
	// Connected is told whether a side, postgres or kafka, can be reached.
	Connected(side string, ok bool)
	// Role is told of a change of role: starting, standby, active or stopping.
	Role(role string)
	// Capacity is told how many bytes may be in flight at most.
	Capacity(bytes int64)
	// Observe hands over what is read when metrics are collected.
	Observe(received, confirmed func() pg.LSN, inFlightEvents, inFlightBytes func() int64)
}

// Keep runs one session after the other. It returns nil once ctx has ended, and
// a session's error where that is final or not transient. failed is told of
// every other error, and how long Keep waits then.
func Keep(ctx context.Context, one func(context.Context) error, final error, failed func(err error, wait time.Duration)) error {
	retry := backoff.Series{Range: waits}
	for {
		began := time.Now()
		err := one(ctx)
		transient := failure.ClassOf(err) == failure.Transient
		if transient && ctx.Err() != nil {
			return nil
		}
		if !transient || errors.Is(err, final) {
			return err
		}
		if time.Since(began) > reset {
			retry.Reset()
		}
		wait := retry.Next()
		failed(err, wait)
		if backoff.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}

// Wake wakes the receiver of a channel of capacity 1; wake-ups coalesce.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
