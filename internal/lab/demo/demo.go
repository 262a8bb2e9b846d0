// Package demo shows the whole connector on a single machine with nothing to
// configure: a throwaway PostgreSQL, an in-process Kafka broker on a loopback
// port, the connector, an order service writing business rows and outbox rows in
// a single transaction, and a consumer.
//
// Invariants:
//
//  1. The connector runs as is: the demo gives it a configuration and reads the
//     records in Kafka, nothing else.
//  2. The summary was checked: every committed event against the records that
//     arrived. A difference is an error.
//  3. When Run returns nothing is left, neither process nor file.
//
// Goroutines: Run starts three – connector, order service, consumer – and
// joins them. Run's own goroutine alone touches the ledger and the screen.
//
// Non-goals: load, fault injection, keeping any data.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

// Options say how to run the demo.
type Options struct {
	// Events is the number of events to the demo's end; 0 means no end before
	// the context's.
	Events int
	// Out is where the demo shows itself. Required.
	Out io.Writer
	// Color allows ANSI colours, for a terminal.
	Color bool
	// Connect runs the connector with a configuration until the context ends,
	// then drains and returns nil. Required.
	Connect func(ctx context.Context, cfg *config.Config) error
}

// The pace: slow enough to read along in a demo without end, quick with an end,
// and without a pause for more events than are shown.
const (
	endlessPause  = 250 * time.Millisecond
	shortPause    = 25 * time.Millisecond
	maxShown      = 100 // events shown singly
	rollbackEvery = 8   // of the transactions
)

// Limits of waits, normally for moments.
const (
	connectTimeout = time.Minute
	arrivalTimeout = 30 * time.Second // from the last commit or arrival
	leaveTimeout   = 15 * time.Second // after Ctrl-C
)

// Run runs the demo until Events events arrived or ctx ends, shows a summary
// and removes everything. Run returns an error for any failure, and for a
// difference between committed and arrived events.
func Run(ctx context.Context, o Options) (err error) {
	began := time.Now()
	show := newScreen(o.Out, o.Color)
	show.title()
	st, err := setUp(ctx, show)
	if ctx.Err() != nil && st == nil {
		return nil // the user left: work under way failed because of that
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close()) }()

	r := newRun(o, st, show)
	r.ledger.began = began
	if err := r.run(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil // the user left before the connector was ready
		}
		return err
	}
	found := r.ledger.report()
	show.summary(found, o.Events > 0)
	return found.err
}

// run is a demo on its stage.
type run struct {
	Options
	stage    *stage
	show     *screen
	ledger   *ledger
	sample   map[string]bool // the ids of the events to show
	changes  chan change
	arrivals chan arrival
}

func newRun(o Options, st *stage, show *screen) *run {
	return &run{
		Options:  o,
		stage:    st,
		show:     show,
		ledger:   newLedger(),
		sample:   map[string]bool{},
		changes:  make(chan change),
		arrivals: make(chan arrival),
	}
}

// run starts the three actors, follows them to the end and joins them. The
// connector and the consumer outlive ctx: everything committed when the user
// left shall still arrive.
func (r *run) run(ctx context.Context) error {
	working, stopWorking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorking()
	actors, failed := errgroup.WithContext(working)
	r.ledger.connectorStarted = time.Now()
	actors.Go(func() error {
		if err := r.Connect(failed, &r.stage.config); err != nil {
			return fmt.Errorf("connector: %w", err)
		}
		if working.Err() == nil {
			return errors.New("connector: stopped by itself")
		}
		return nil
	})
	err := r.stage.awaitStreaming(ctx, failed)
	if err == nil {
		r.show.ready(r.stage)
		actors.Go(func() error { return consume(failed, r.stage.brokers, r.arrivals) })
		writing, stopWriting := context.WithCancel(failed)
		actors.Go(func() error { return r.stage.write(writing, r.Events, r.pause(), r.changes) })
		r.follow(ctx, failed, stopWriting)
		stopWriting()
	}
	stopWorking()
	// An actor's error is the cause; the vain wait for the actor is not.
	if actorErr := actors.Wait(); actorErr != nil {
		return actorErr
	}
	return err
}

// pause is how long the order service waits after each transaction.
func (r *run) pause() time.Duration {
	switch {
	case r.Events == 0:
		return endlessPause
	case r.Events <= maxShown:
		return shortPause
	default:
		return 0
	}
}
