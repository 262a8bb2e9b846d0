// Package session keeps a source connected to its server: session after session, until a
// new session would not help. It also has the role of any source (Role), and bounds the
// wait at a stop (Drain).
//
// Non-goals: the content of a session.
package session

import (
	"context"
	"errors"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// reset: a session of this length starts the backoff anew.
const reset = 30 * time.Second

// waits are the waits between sessions.
var waits = backoff.Range{First: 100 * time.Millisecond, Longest: 10 * time.Second}

// Metrics is told of the work of any source. The methods are called from several
// goroutines and must not block.
type Metrics interface {
	// Reconnected counts broken connections; side is postgres, kafka or checkpoint.
	Reconnected(side string)
	// Connected is told whether a side, postgres or kafka, can be reached.
	Connected(side string, ok bool)
	// Role is told of a change of role: starting, standby, active or stopping.
	Role(role string)
	// Capacity is told how many bytes may be in flight at most.
	Capacity(bytes int64)
	// Observe hands over functions for the collection of metrics.
	Observe(received, confirmed func() pg.LSN, inFlightEvents, inFlightBytes func() int64)
}

// Keep runs session after session. It returns nil once ctx has ended, and a session's
// error if final or not transient. failed is told of every other error, and of the wait
// before the next session.
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
