package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/httpapi"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/page"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/registry"
	"github.com/cdc-outbox/cdc-outbox/internal/shadow"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
)

// ShadowOptions are the choices of Shadow.
type ShadowOptions struct {
	// Slot is Debezium's, in the same database.
	Slot string
	// Topics match the topics that Debezium may write to, beside those of route.topic.
	Topics []*regexp.Regexp
	// State tells how a Connect worker sees the connector; nil: nobody asks.
	State func(context.Context) (text string, runs bool, err error)
	// For ends the comparison; 0: ctx does.
	For time.Duration
	// UntilIdle ends the comparison when nothing has come for a while.
	UntilIdle bool
	// ByContent pairs records without ids.
	ByContent bool
	// Prefix publishes the records, too, to topics whose names begin so; empty: nothing is
	// published.
	Prefix string
	// MaxRetained ends the comparison when its slot keeps more of the log, in bytes.
	MaxRetained int64
	// Notes takes a line about each trouble.
	Notes io.Writer
}

// shadowPace is between two rounds.
const shadowPace = time.Second

const (
	// shadowGrace is for records on their way at the end.
	shadowGrace = 30 * time.Second
	// shadowExamples are shown of a kind, shadowNotes in all.
	shadowExamples, shadowNotes = 3, 30
	// stateEach is between two questions to the Connect worker.
	stateEach = 15 * time.Second
)

// idleAfter is how long nothing comes until a comparison is idle; idleAfterPending is that of a
// comparison with events pending: Debezium may not have confirmed them yet, or a schema is missing.
var idleAfter, idleAfterPending = 10 * time.Second, 2 * time.Minute

// shadowing is a comparison at work. One goroutine follows the log, one makes the rounds, one
// answers HTTP; Shadow joins them.
type shadowing struct {
	cfg     *config.Config
	opts    ShadowOptions
	cluster *cluster
	encoder *registry.Encoder // registers nothing; nil: records are as they are
	started time.Time

	mu     sync.Mutex // guards the rest, and the notes
	room   *sync.Cond // of mu: our side may have room
	c      *shadow.Comparison
	slot   string // ours; empty: not connected
	state  ShadowState
	schema string // why our reader waits for a schema; empty: it does not
	topics []string
	notes  []string

	theirs *theirTopics // of the rounds
	conn   *session     // of the rounds; nil: not connected
	asked  time.Time    // when the Connect worker was asked
	sender *shadowSender
}

// Shadow compares the events of the outbox with the records that Debezium publishes, from now
// on, until ctx ends or the comparison is over. The report comes with the verdict as an error. All
// that Shadow makes is a temporary slot.
func Shadow(ctx context.Context, cfg *config.Config, opts ShadowOptions) (*ShadowReport, error) {
	if err := shadowable(cfg); err != nil {
		return nil, err
	}
	encoder, err := wiring.Encoder(cfg)
	if err != nil {
		return nil, err
	}
	if encoder != nil {
		encoder.LookOnly()
		defer encoder.Close()
	}
	s := &shadowing{cfg: cfg, opts: opts, cluster: newCluster(cfg), encoder: encoder, started: time.Now(),
		c: shadow.New(shadow.Options{Limit: cfg.Sink.Kafka.MaxBufferedBytes, Examples: shadowExamples, ByContent: opts.ByContent,
			FramedKeys: cfg.Encoding.Key.Format != registry.FormatNone, FramedValues: cfg.Encoding.Value.Format != registry.FormatNone})}
	s.room = sync.NewCond(&s.mu)
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.cluster.client.Close()
	defer func() {
		if s.conn != nil {
			s.conn.close()
		}
	}()
	if opts.Prefix != "" {
		if s.sender, err = newShadowSender(cfg, opts.Prefix, s.note); err != nil {
			return nil, err
		}
		defer s.sender.close()
	}
	err = s.work(ctx)
	r := s.report()
	if err != nil {
		return r, err
	}
	return r, r.verdict()
}

// shadowable is the reason against a comparison, if any.
func shadowable(cfg *config.Config) error {
	switch {
	case cfg.Source.Mode == config.ModePoll:
		return noSlot("shadow", "compare under source.mode: wal")
	case cfg.Sink.Kafka == nil:
		return failure.Configf("configure sink.kafka: the brokers that Debezium publishes to", "shadow reads Debezium's topics, and there is no sink.kafka")
	}
	return nil
}

// begin asks for Debezium's slot, and for the ends of the topics: each record from there on
// may be of an event that our reader will see.
func (s *shadowing) begin(ctx context.Context) (err error) {
	like, only, err := s.cfg.Route.Topics()
	if err != nil {
		return err
	}
	if s.conn, err = open(ctx, s.cfg); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.conn.close()
		}
	}()
	server, err := catalog.ReadServer(ctx, s.conn.conn)
	if err != nil {
		return err
	}
	if server.InRecovery {
		return failure.Configf("name the primary in source.url", "shadow reads the end of the log, which a standby does not tell")
	}
	slot, ok, err := catalog.ReadSlot(ctx, s.conn.conn, s.opts.Slot)
	switch {
	case err != nil:
		return err
	case !ok:
		return failure.Configf("start Debezium, or name its connector by --against, and its server by source.url", "slot %q, Debezium's, does not exist", s.opts.Slot)
	case slot.Database != server.Database:
		return failure.Configf("correct the database in source.url", "slot %q, Debezium's, belongs to database %q, not to %q", s.opts.Slot, slot.Database, server.Database)
	}
	if err := s.cluster.connect(ctx); err != nil {
		return err
	}
	s.theirs = newTheirTopics(s.cluster, append([]*regexp.Regexp{like}, s.opts.Topics...), only)
	if err := s.theirs.begin(ctx); err != nil {
		s.cluster.client.Close()
		return fmt.Errorf("read Debezium's topics: %w", err)
	}
	return nil
}

// work follows both sides until the end.
func (s *shadowing) work(ctx context.Context) error {
	serve, stopServing, err := s.serve(ctx)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if s.opts.For > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, s.opts.For)
		defer stop()
	}
	var all sync.WaitGroup
	var followed, served error
	all.Go(func() { served = serve() })
	following, leave := context.WithCancel(ctx)
	followDone := make(chan struct{})
	all.Go(func() {
		defer close(followDone)
		if followed = s.follow(following); followed != nil {
			end(followed)
		}
	})
	err = s.rounds(ctx)
	leave()
	<-followDone // the slot is gone
	if err == nil && followed == nil {
		s.finish(context.WithoutCancel(ctx))
	}
	stopServing()
	all.Wait()
	return errors.Join(err, followed, served)
}

// serve answers HTTP, if configured, until stop.
func (s *shadowing) serve(ctx context.Context) (serve func() error, stop context.CancelFunc, err error) {
	if s.cfg.HTTP.Listen == "" {
		return func() error { return nil }, func() {}, nil
	}
	collected := prometheus.NewRegistry()
	collected.MustRegister(metrics.Shadow(func() metrics.ShadowNumbers { return s.report().numbers() }))
	server, err := httpapi.Listen(s.cfg.HTTP.Listen, shadowHealth{s}, collected, page.NewText(s.cfg.HTTP, "cdc-outbox shadow", s.text), zap.NewNop())
	if err != nil {
		return nil, nil, err
	}
	ctx, stop = context.WithCancel(context.WithoutCancel(ctx))
	return func() error { return server.Serve(ctx) }, stop, nil
}

// finish waits for records on their way.
func (s *shadowing) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, shadowGrace)
	defer cancel()
	for {
		err := s.round(ctx)
		if r := s.report(); r.Pending == 0 || ctx.Err() != nil {
			return
		}
		if err != nil {
			s.trouble("at the end", err)
		}
		if backoff.Sleep(ctx, shadowPace) != nil {
			return
		}
	}
}

// note tells a line, also in the report.
func (s *shadowing) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	fmt.Fprintln(s.opts.Notes, line)
	if s.notes = append(s.notes, time.Now().UTC().Format(time.TimeOnly)+" "+line); len(s.notes) > shadowNotes {
		s.notes = s.notes[1:]
	}
}

// Write takes lines of the follower's progress.
func (s *shadowing) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opts.Notes.Write(b)
}

// trouble tells an error that may pass.
func (s *shadowing) trouble(side string, err error) { s.note("%s: %v", side, err) }

// passing tells whether an error may pass.
func passing(err error) bool { return failure.ClassOf(err) == failure.Transient }

// errRetained ends a comparison whose slot keeps too much of the log.
func errRetained(slot string, retained, most int64) error {
	return &failure.Error{Class: failure.Transient, Remedy: "see why Debezium lags, then repeat the command, or give it more room by --max-retained",
		Err: fmt.Errorf("%w by slot %q, of this comparison, which is dropped: %d bytes, more than %d", errOver, slot, retained, most)}
}

// retained is how much of the log a slot keeps.
func retained(slot catalog.Slot, end pg.LSN) int64 {
	if slot.RestartLSN == 0 || end < slot.RestartLSN {
		return 0
	}
	return int64(end - slot.RestartLSN)
}
