package main

import (
	"context"
	"time"
)

// task is what a subject is to do: stream the slot's events into the topic.
type task struct{ slot, topic string }

// subject is a way to get rows from PostgreSQL to Kafka.
type subject interface {
	name() string
	// staysWarm tells whether its process outlives a run.
	staysWarm() bool
	// start starts to stream. It need not wait until it does.
	start(ctx context.Context, t task) (running, error)
	// close ends what outlives a run.
	close() error
}

// running is a subject at work.
type running interface {
	// pid is of the process whose costs count.
	pid() int
	// began is when it was started, and used is what the process had used by then.
	began() (at time.Time, used usage)
	// alive is why it does not work any more, or nil.
	alive(ctx context.Context) error
	// explain adds what it printed to an error.
	explain(err error) error
	// stop ends the streaming, and the process unless that is to stay warm.
	stop() error
}
