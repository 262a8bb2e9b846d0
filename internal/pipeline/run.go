// Package pipeline runs the pipelines of a configuration. For each it opens a sink and a
// checkpoint store, and runs a source. Beside them it answers HTTP.
//
// Invariants:
//
//  1. HTTP answers from before the first connection is made until after the
//     drain: /livez is well while a broker is awaited.
//  2. Everything opened is closed, in the reverse order, however Run ends.
//  3. Pipelines share nothing but the process: a failed pipeline is started again
//     or, if no start can help, stays down; the others do not notice.
//  4. A pipeline is added, removed or replaced without a touch of the others. No two
//     pipelines with the same slot, checkpoint or polled table ever run at a time.
//
// Non-goals: reading the configuration, exit codes.
package pipeline

import (
	"context"
	"io"
	"strings"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/httpapi"
	"github.com/cdc-outbox/cdc-outbox/internal/invocation"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/page"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/tracing"
)

// Options say what to run. The first three are required.
type Options struct {
	// Config has passed validation.
	Config *config.Config
	Log    *zap.Logger
	// Stdout is where sink.stdout writes.
	Stdout io.Writer
	// Version and Commit are those of the program, for the log, the metrics and the
	// page. Optional.
	Version, Commit string
	// Invocation completes the commands in remedies. Optional.
	Invocation invocation.Invocation
	// Applying is called with the pipelines of another look at the configuration, before
	// they begin. Optional.
	Applying func([]config.Pipeline)
}

// Run runs the pipeline, or all pipelines, until ctx ends, then drains and
// returns nil. Run returns early with an error that retrying does not fix; the
// error's failure.Class is the process's exit code. With several pipelines it
// returns early only when events of all of them may have been lost. If a
// pipeline has failed, its error is also the result after a stop.
func Run(ctx context.Context, o Options) error {
	o.Log.Info("starting", zap.String("version", o.Version), zap.String("commit", o.Commit), sources(o.Config))
	counts := metrics.New(o.Version, o.Commit)
	exporter, stopSpans, err := startSpans(o, counts)
	if err != nil {
		return err
	}
	defer stopSpans()
	shown := page.New(o.Config.HTTP, o.Version, counts.Pipelines())
	set := newSet(o, counts, exporter, shown)
	var process process = set
	offer := set.Apply
	if o.Config.Fleet.On() {
		crew, err := newCrew(o, set, counts)
		if err != nil {
			return err
		}
		shown.Fleet(func() any { return crew.fleetStatus() })
		process, offer = crew, crew.offer
	}
	if o.Config.Look == nil {
		offer(o.Config.Each())
	} else {
		set.lasting = true
		set.sources = follow(o, counts, offer)
		process = following{process, set.sources}
	}
	if o.Config.HTTP.Listen == "" {
		return process.Run(ctx)
	}
	server, err := httpapi.Listen(o.Config.HTTP.Listen, process, counts.Gatherer(), shown, o.Log)
	if err != nil {
		return err
	}
	o.Log.Info("serving HTTP", zap.Stringer("address", server.Addr()), zap.String("page", "http://"+server.Addr().String()+"/"))

	// The HTTP server outlives ctx, so that a drain can be watched. The end of either
	// ends the other.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return server.Serve(serving) })
	both.Go(func() error {
		defer stopServing()
		return process.Run(ctx)
	})
	return both.Wait()
}

// process is a set, or a set in a fleet.
type process interface {
	httpapi.Health
	Run(ctx context.Context) error
}

// newPipeline makes a pipeline of the set, which does not run yet.
func (s *Set) newPipeline(spec config.Pipeline) *pipeline {
	command := s.o.Invocation
	command.Pipeline = spec.Name
	p := &pipeline{
		name:    spec.Name,
		cfg:     spec.Config,
		log:     command.Log(s.o.Log),
		command: command,
		metrics: s.counts.Pipeline(spec.Name),
		stdout:  s.stdout,
		health:  &health{command: command, spans: s.spans},
		recent:  delivery.NewRecent(spec.Config.Event.TypeHeader, s.o.Config.HTTP.Payloads),
	}
	if s.o.Config.HTTP.Events == page.EventsNever {
		p.recent.Anonymous()
	}
	p.metrics.ObserveReady(func() bool { ok, _ := p.health.Ready(); return ok })
	if spec.Name != "" {
		p.log = p.log.With(zap.String("pipeline", spec.Name))
	}
	if kafka := spec.Config.Sink.Kafka; kafka != nil && s.spans != nil {
		p.spans = &tracing.Source{Exporter: s.spans, Pipeline: p.name, ClientID: kafka.ClientID}
	}
	return p
}

// onPage describes the pipeline for the page.
func (p *pipeline) onPage() page.Pipeline {
	shown := page.Pipeline{Name: p.name, Mode: p.cfg.Source.Mode, Sink: "standard output", Status: p.health.Status, Recent: p.recent}
	for _, table := range p.cfg.Source.Tables {
		shown.Tables = append(shown.Tables, table.String())
	}
	switch p.cfg.Source.Mode {
	case config.ModePoll:
	case config.ModeMessage:
		shown.Tables = append(shown.Tables, "messages "+p.cfg.Source.MessagePrefix)
		fallthrough
	default:
		shown.Slot, shown.Publication = p.cfg.Source.Slot, p.cfg.Source.Publication
	}
	if kafka := p.cfg.Sink.Kafka; kafka != nil {
		shown.Sink = strings.Join(kafka.Brokers, ", ")
	}
	return shown
}

// lockedWriter keeps the lines of several pipelines apart.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}
