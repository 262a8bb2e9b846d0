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

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/httpapi"
	"github.com/cdc-outbox/cdc-outbox/internal/invocation"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/page"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
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
}

// Run runs the pipeline, or all pipelines, until ctx ends, then drains and
// returns nil. Run returns early with an error that retrying does not fix; the
// error's failure.Class is the process's exit code. With several pipelines it
// returns early only when events of all of them may have been lost. If a
// pipeline has failed, its error is also the result after a stop.
func Run(ctx context.Context, o Options) error {
	o.Log.Info("starting", zap.String("version", o.Version), zap.String("commit", o.Commit), sources(o.Config))
	set := metrics.New(o.Version, o.Commit)
	pipelines, health := newPipelines(o, set)
	stopSpans, err := startSpans(o, set, pipelines)
	if err != nil {
		return err
	}
	defer stopSpans()
	if o.Config.HTTP.Listen == "" {
		return runAll(ctx, pipelines)
	}
	server, err := httpapi.Listen(o.Config.HTTP.Listen, health, set.Gatherer(), newPage(o, set, pipelines), o.Log)
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
		return runAll(ctx, pipelines)
	})
	return both.Wait()
}

// newPipelines makes the pipelines, and the health of all.
func newPipelines(o Options, set *metrics.Set) ([]*pipeline, httpapi.Health) {
	out := &lockedWriter{to: o.Stdout}
	each := o.Config.Each()
	pipelines := make([]*pipeline, len(each))
	for i, p := range each {
		command := o.Invocation
		command.Pipeline = p.Name
		pipelines[i] = &pipeline{
			name:    p.Name,
			cfg:     p.Config,
			log:     command.Log(o.Log),
			command: command,
			metrics: set.Pipeline(p.Name),
			stdout:  out,
			health:  &health{command: command},
			recent:  delivery.NewRecent(p.Config.Event.TypeHeader, o.Config.HTTP.Payloads),
		}
		if o.Config.HTTP.Events == page.EventsNever {
			pipelines[i].recent.Anonymous()
		}
		pipelines[i].metrics.ObserveReady(func() bool { ok, _ := pipelines[i].health.Ready(); return ok })
		if p.Name != "" {
			pipelines[i].log = pipelines[i].log.With(zap.String("pipeline", p.Name))
		}
	}
	if len(o.Config.Pipelines) == 0 {
		return pipelines, pipelines[0].health
	}
	return pipelines, allHealth(pipelines)
}

// newPage makes the page showing the pipelines.
func newPage(o Options, set *metrics.Set, pipelines []*pipeline) *page.Page {
	shown := make([]page.Pipeline, len(pipelines))
	for i, p := range pipelines {
		s := page.Pipeline{Name: p.name, Mode: p.cfg.Source.Mode, Sink: "standard output", Status: p.health.Status, Recent: p.recent}
		for _, table := range p.cfg.Source.Tables {
			s.Tables = append(s.Tables, table.String())
		}
		switch p.cfg.Source.Mode {
		case config.ModePoll:
		case config.ModeMessage:
			s.Tables = append(s.Tables, "messages "+p.cfg.Source.MessagePrefix)
			fallthrough
		default:
			s.Slot, s.Publication = p.cfg.Source.Slot, p.cfg.Source.Publication
		}
		if kafka := p.cfg.Sink.Kafka; kafka != nil {
			s.Sink = strings.Join(kafka.Brokers, ", ")
		}
		shown[i] = s
	}
	return page.New(o.Config.HTTP, o.Version, shown, set.Pipelines())
}

// runAll runs the pipelines until each has ended. Its goroutines, one for each,
// have ended when it returns.
func runAll(ctx context.Context, pipelines []*pipeline) error {
	if len(pipelines) == 1 && pipelines[0].name == "" {
		return pipelines[0].run(ctx)
	}
	errs := make([]error, len(pipelines))
	var all sync.WaitGroup
	for i, p := range pipelines {
		all.Go(func() { errs[i] = p.supervise(ctx, p.run) })
	}
	all.Wait()
	return failure.Join(errs...)
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
