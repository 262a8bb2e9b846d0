package main

import (
	"context"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// task is a subject's work: to stream the slot's events into the topic.
type task struct{ slot, topic string }

// subject is a way to get rows from PostgreSQL to Kafka.
type subject interface {
	name() string
	// staysWarm tells whether a JVM used by the subject outlives a run.
	staysWarm() bool
	// start starts the streaming, and need not wait for the first event.
	start(ctx context.Context, t task) (running, error)
	// close ends everything that outlives a run.
	close() error
}

// running is a subject at work.
type running interface {
	// Usage is the usage of the process whose costs count.
	Usage() (rig.Usage, error)
	// began is the time of the start, and used the process's usage by then.
	began() (at time.Time, used rig.Usage)
	// Alive returns an error once the subject does not work any more.
	Alive(ctx context.Context) error
	// Explain adds the subject's output to an error.
	Explain(err error) error
	// Stop ends the streaming, and the process unless it stays warm.
	Stop() error
}
