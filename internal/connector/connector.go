// Package connector makes a running connector of a configuration: it opens the
// sink and the checkpoint store, gives them to a relay, and answers HTTP beside
// it.
//
// Invariants:
//
//  1. HTTP answers from before the first connection is made until after the
//     drain: /livez is well while a broker is awaited.
//  2. What was opened is closed, in the reverse order, however Run ends.
//
// Non-goals: reading the configuration, exit codes, several relays in one
// process.
package connector

import (
	"context"
	"io"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/config"
	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/httpapi"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/relay"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Options say what to run. All are required.
type Options struct {
	// Config has passed validation.
	Config  *config.Config
	Log     *zap.Logger
	Metrics *metrics.Metrics
	// Stdout is where sink.stdout writes.
	Stdout io.Writer
}

// Run runs the connector until ctx ends, then drains and returns nil. It
// returns early with an error that retrying does not mend, whose failure.Class
// is the process's exit code.
func Run(ctx context.Context, o Options) error {
	c := &connector{Options: o, health: &health{}}
	if o.Config.HTTP.Listen == "" {
		return c.relay(ctx)
	}
	server, err := httpapi.Listen(o.Config.HTTP.Listen, c.health, o.Metrics.Gatherer(), o.Log)
	if err != nil {
		return err
	}
	o.Log.Info("serving HTTP", zap.Stringer("address", server.Addr()))

	// The server outlives ctx: a drain can be watched. Either of the two ends
	// the other.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return server.Serve(serving) })
	both.Go(func() error {
		defer stopServing()
		return c.relay(ctx)
	})
	return both.Wait()
}

// connector is one call of Run.
type connector struct {
	Options
	health *health
}

// relay opens what a relay needs and runs it.
func (c *connector) relay(ctx context.Context) error {
	router, err := transform.New(c.Config.Event, c.Config.Route)
	if err != nil {
		return err
	}
	state := relay.NewHealth(c.Metrics)
	out, err := c.openSink(state)
	if err != nil {
		return err
	}
	defer out.Close()
	store, err := c.openStore(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped before anything was read
		}
		return err
	}
	defer store.Close()
	r, err := relay.New(relay.Options{
		Config:  *c.Config,
		Router:  router,
		Sink:    out,
		Store:   store,
		Metrics: c.Metrics,
		Health:  state,
		Log:     c.Log,
	})
	if err != nil {
		return err
	}
	c.health.set(state)
	return r.Run(ctx)
}

func (c *connector) openSink(state *relay.Health) (sink.Sink, error) {
	kafka := c.Config.Sink.Kafka
	if kafka == nil {
		return sink.NewStdout(c.Stdout), nil
	}
	opts := []sink.Option{sink.WithLogger(c.Log), sink.WithObserver(sink.Observer{
		Reconnect:         func() { c.Metrics.Reconnected("kafka") },
		PartitionsChanged: func(topic string, _, _ int32) { c.Metrics.PartitionsGrown(topic) },
		TopicWaiting:      state.TopicWaiting,
	})}
	if c.Config.Errors.OnBadEvent == config.BadEventDeadLetter {
		opts = append(opts, sink.WithDeadLetterTopic(c.Config.Errors.DeadLetterTopic))
	}
	return sink.NewKafka(*kafka, opts...)
}

// storeWaits are those between attempts to reach the checkpoint store.
var storeWaits = backoff.Range{First: 250 * time.Millisecond, Longest: 5 * time.Second}

// openStore opens the checkpoint store, and tries again for as long as ctx
// lives when it cannot be reached.
func (c *connector) openStore(ctx context.Context) (checkpoint.Store, error) {
	retry := backoff.Series{Range: storeWaits}
	for {
		store, err := wiring.OpenStore(ctx, c.Config)
		if err == nil {
			return store, nil
		}
		if ctx.Err() != nil || failure.ClassOf(err) != failure.Transient {
			return nil, err
		}
		c.health.waitFor(err)
		wait := retry.Next()
		c.Log.Warn("checkpoint store is not available, will retry", zap.Error(err),
			zap.String("remedy", failure.RemedyOf(err)), zap.Duration("wait", wait))
		if err := backoff.Sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}
