package main

import (
	"context"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// task is what a subject is to do: stream the slot's events into the topic.
type task struct{ slot, topic string }

// subject is a way to get rows from PostgreSQL to Kafka.
type subject interface {
	name() string
	// staysWarm tells whether a JVM that it uses outlives a run.
	staysWarm() bool
	// start starts to stream. It need not wait until it does.
	start(ctx context.Context, t task) (running, error)
	// close ends what outlives a run.
	close() error
}

// running is a subject at work.
type running interface {
	// Usage is that of the process whose costs count.
	Usage() (rig.Usage, error)
	// began is when it was started, and used is what the process had used by
	// then.
	began() (at time.Time, used rig.Usage)
	// Alive is why it does not work any more, or nil.
	Alive(ctx context.Context) error
	// Explain adds what it printed to an error.
	Explain(err error) error
	// Stop ends the streaming, and the process unless that is to stay warm.
	Stop() error
}
