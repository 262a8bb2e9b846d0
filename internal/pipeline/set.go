package pipeline

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/httpapi"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/page"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
	"github.com/cdc-outbox/cdc-outbox/internal/tracing"
)

var _ httpapi.Health = (*Set)(nil)

// Set runs the pipelines of a process. Apply names the wanted ones, at any time; Run, the
// owner of the members, starts and stops accordingly. Each pipeline has a goroutine, joined
// by Run. A stop of a pipeline is that of the process: it drains, saves the checkpoint,
// confirms, and closes the connections.
//
// A Set is safe for concurrent use. Health, status, metrics and the page follow the members.
type Set struct {
	o      Options
	counts *metrics.Set
	spans  *tracing.Exporter // nil: no spans are exported
	page   *page.Page
	stdout io.Writer
	// lasting keeps Run running without any running pipeline: more may come.
	lasting bool
	sources *follower // nil: the pipelines stay the same
	// run runs a pipeline until ctx ends: its method whole, except in tests.
	run func(ctx context.Context, p *pipeline) error

	// told, if not nil, is called at each change of members or their states. It must not block.
	told func()

	wake chan struct{} // has room for a single call of Run

	mu      sync.Mutex
	wanted  []config.Pipeline
	members []*member
	changed chan struct{} // closed at the next change of members or their states, then replaced
}

// member is a pipeline of the set, from its start until it was dropped.
type member struct {
	*pipeline
	spec    config.Pipeline
	state   state
	begun   time.Time
	stopped time.Time // when it was told to stop; zero: it was not
	stop    context.CancelFunc
	hurry   func()      // takes the patience of a stop, also of a stop under way
	late    *time.Timer // complains about a long stop
	err     error       // after the end
}

// kept tells whether the member may stay as it is.
func (m *member) kept(wanted []config.Pipeline) bool {
	return m.stopped.IsZero() && slices.ContainsFunc(wanted, m.spec.Same)
}

// renewed tells whether the member is wanted with the same specification, but for a secret.
func (m *member) renewed(wanted []config.Pipeline) bool {
	return slices.ContainsFunc(wanted, func(w config.Pipeline) bool { return w.Name == m.name && w.Spec() == m.spec.Spec() })
}

// flows tells whether the pipeline gets events through.
func (m *member) flows() bool {
	ok, _ := m.health.Ready()
	return ok
}

func newSet(o Options, counts *metrics.Set, spans *tracing.Exporter, shown *page.Page) *Set {
	return &Set{o: o, counts: counts, spans: spans, page: shown, stdout: &lockedWriter{to: o.Stdout},
		run: func(ctx context.Context, p *pipeline) error { return p.whole(ctx) }, wake: make(chan struct{}, 1), changed: make(chan struct{})}
}

// Apply names the pipelines to run, in place of those before, and returns at once: see
// Settled. Their specifications have passed validation, together.
func (s *Set) Apply(wanted []config.Pipeline) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = slices.Clone(wanted)
	s.poke()
}

// Settled returns once the named pipelines, or all without names, are as wanted by the last
// Apply: an unwanted pipeline has ended, with nothing open any more, and a wanted pipeline was
// started with its present specification. The error is the cause of ctx's end before. Give
// ctx a deadline: a stop may last for longer than errors.drain_timeout.
func (s *Set) Settled(ctx context.Context, names ...string) error {
	for {
		settled, changed := s.settled(names)
		if settled {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *Set) settled(names []string) (settled bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := func(name string) bool { return len(names) == 0 || slices.Contains(names, name) }
	ends := func(m *member) bool { return of(m.name) && m.state != stateEnded && !m.kept(s.wanted) }
	begins := func(w config.Pipeline) bool {
		m := s.member(w.Name)
		return of(w.Name) && (m == nil || !m.kept([]config.Pipeline{w}))
	}
	return !slices.ContainsFunc(s.members, ends) && !slices.ContainsFunc(s.wanted, begins), s.changed
}

// poke has Run look again. The caller holds mu.
func (s *Set) poke() {
	close(s.changed)
	s.changed = make(chan struct{})
	if s.told != nil {
		s.told()
	}
	select {
	case s.wake <- struct{}{}:
	default: // Run will look anyway
	}
}

// member returns the member with the name, or nil. The caller holds mu.
func (s *Set) member(name string) *member {
	if i := slices.IndexFunc(s.members, func(m *member) bool { return m.name == name }); i >= 0 {
		return s.members[i]
	}
	return nil
}

// Run runs the wanted pipelines until ctx ends, drains them, and returns nil or the errors of
// failed pipelines. Unless the set is lasting, Run returns when all have ended. The
// goroutines have ended when Run returns.
func (s *Set) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		if s.step(ctx, &all) {
			return s.result()
		}
		if ctx.Err() != nil {
			<-s.wake // of a pipeline that ends
			continue
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

// step does what is next. After the end of ctx nothing is started any more. over: Run is done.
func (s *Set) step(ctx context.Context, all *sync.WaitGroup) (over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lasting := s.lasting
	if ctx.Err() == nil {
		s.change(ctx, all)
	} else {
		lasting = false
	}
	return !lasting && !slices.ContainsFunc(s.members, func(m *member) bool { return m.state != stateEnded })
}

// change takes steps until none is left. The caller holds mu.
func (s *Set) change(ctx context.Context, all *sync.WaitGroup) {
	stop, drop, start := steps(s.members, s.wanted)
	for _, m := range stop {
		why := "it is not wanted any more"
		if slices.ContainsFunc(s.wanted, func(w config.Pipeline) bool { return w.Name == m.name }) {
			why = "its specification has changed"
		}
		s.halt(m, why)
	}
	for _, m := range drop {
		if _, said := errors.AsType[logged](m.err); m.err != nil && !said {
			m.log.Error("pipeline failed while it stopped", zap.Error(m.err), zap.String("remedy", failure.RemedyOf(m.err)))
		}
		m.metrics.Remove()
		s.members = slices.DeleteFunc(s.members, func(other *member) bool { return other == m })
	}
	for _, spec := range start {
		s.begin(ctx, spec, all)
	}
	if len(drop)+len(start) == 0 {
		return
	}
	shown := make([]page.Pipeline, 0, len(s.members))
	for _, m := range s.inOrder() {
		shown = append(shown, m.onPage())
	}
	s.page.Show(shown)
	s.poke()
}

// longStop is for how long a stop beyond the time to drain is nothing special.
const longStop = 30 * time.Second

// halt tells a member to stop. The caller holds mu.
func (s *Set) halt(m *member, why string) {
	m.log.Info("stopping a pipeline", zap.String("reason", why))
	m.state, m.stopped = stateStopping, time.Now()
	m.late = time.AfterFunc(m.cfg.Errors.DrainTimeout+longStop, func() {
		m.log.Warn("a pipeline has not stopped yet; its slot, its checkpoint and its name stay taken until it has", zap.Time("since", m.stopped))
	})
	m.stop()
}

// begin makes a member and its goroutine. The caller holds mu.
func (s *Set) begin(ctx context.Context, spec config.Pipeline, all *sync.WaitGroup) {
	ctx, stop := context.WithCancel(ctx)
	ctx, hurry := session.WithHaste(ctx)
	m := &member{pipeline: s.newPipeline(spec), spec: spec, begun: time.Now(), stop: stop, hurry: hurry}
	s.members = append(s.members, m)
	all.Go(func() {
		defer stop()
		err := s.run(ctx, m.pipeline)
		s.mu.Lock()
		defer s.mu.Unlock()
		if m.late != nil {
			m.late.Stop()
		}
		m.state, m.err = stateEnded, err
		s.poke()
	})
}

// whole is the life of a pipeline: beside others it is started again after what may pass.
func (p *pipeline) whole(ctx context.Context) error {
	if p.name == "" {
		return p.run(ctx)
	}
	return p.supervise(ctx, p.run)
}

// result is that of Run.
func (s *Set) result() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, m := range s.inOrder() {
		errs = append(errs, m.err)
	}
	return failure.Join(errs...)
}

// inOrder are the members in the order of the wanted ones, the others last. The caller holds
// mu.
func (s *Set) inOrder() []*member {
	at := make(map[string]int, len(s.wanted))
	for i, w := range s.wanted {
		at[w.Name] = i
	}
	place := func(m *member) int {
		if i, wanted := at[m.name]; wanted {
			return i
		}
		return len(s.wanted)
	}
	return slices.SortedStableFunc(slices.Values(s.members), func(a, b *member) int { return place(a) - place(b) })
}

// single tells whether the configuration has no pipelines, only itself. The caller holds mu.
func (s *Set) single() bool { return len(s.wanted) == 1 && s.wanted[0].Name == "" }

// Live returns the first pipeline's reason for a restart.
func (s *Set) Live() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.inOrder() {
		if err := m.health.Live(); err != nil {
			return err
		}
	}
	return nil
}

// Ready reports whether all wanted pipelines are ready, and names the others.
func (s *Set) Ready() (ok bool, reasons []string) {
	_, _, reasons = s.readiness()
	return len(reasons) == 0, reasons
}

// readiness counts the wanted pipelines, and the ready ones among them, with the reasons against
// the others and against their sources.
func (s *Set) readiness() (ready, wanted int, reasons []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.wanted {
		ok, because := false, []string{"role is starting"}
		if m := s.member(w.Name); m != nil {
			ok, because = m.health.Ready()
		}
		if ok {
			ready++
		}
		for _, reason := range because {
			if w.Name != "" {
				reason = "pipeline " + w.Name + ": " + reason
			}
			reasons = append(reasons, reason)
		}
	}
	if s.sources != nil {
		reasons = append(reasons, s.sources.reasons()...)
	}
	return ready, len(s.wanted), reasons
}

// Status returns the status of each pipeline by its name, also while a pipeline stops. Without
// pipelines in the configuration Status is of the only connector.
func (s *Set) Status() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	pipelines := make(map[string]any, len(s.members))
	for _, m := range s.members {
		pipelines[m.name] = m.health.Status()
	}
	for _, w := range s.wanted {
		if _, there := pipelines[w.Name]; !there { // it waits, or Run has not begun
			pipelines[w.Name] = (&health{command: s.o.Invocation, spans: s.spans}).Status()
		}
	}
	if s.single() {
		return pipelines[""]
	}
	status := map[string]any{"pipelines": pipelines}
	if s.sources != nil {
		status["discovery"] = s.sources.status()
	}
	return status
}
