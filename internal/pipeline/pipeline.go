package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/claimcheck"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/invocation"
	"github.com/cdc-outbox/cdc-outbox/internal/lease"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/stream"
	"github.com/cdc-outbox/cdc-outbox/internal/registry"
	"github.com/cdc-outbox/cdc-outbox/internal/tracing"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// pipeline is a source, a router, a sink and a position: one connector.
type pipeline struct {
	name    string // empty without pipelines in the configuration
	cfg     *config.Config
	log     *zap.Logger
	metrics *metrics.Metrics
	stdout  io.Writer
	health  *health
	recent  *delivery.Recent      // for the page; may be nil
	spans   *tracing.Source       // nil: no spans are exported
	command invocation.Invocation // completes the commands in remedies
	encoder *registry.Encoder     // of the run; nil: records are as they are
	values  *claimcheck.Keeper    // of the run; nil: all values are in Kafka
}

// run runs the pipeline. After another instance has taken over the slot, run starts the
// pipeline anew, to stand by; after a loss of log, to repair. Every other end of the
// pipeline is the end of run. A probe asks the brokers all the time.
func (p *pipeline) run(ctx context.Context) error {
	p.metrics.Connected("postgres", false)
	for _, ignored := range catalog.NeedlessParameters(p.cfg.Source.URL.Reveal()) {
		p.log.Info("a parameter in source.url has no effect", zap.String("parameter", ignored))
	}
	down := delivery.NewDownstream(p.metrics)
	down.Recent, down.Spans = p.recent, p.spans
	if kafka := p.cfg.Sink.Kafka; kafka != nil {
		down.Create = func(topic string) string { return sink.CreateCommand(*kafka, topic) }
	}
	tell := func(err error) {
		down.Brokers(err)
		p.health.brokers(err)
	}
	probe, err := p.newProbe(tell)
	if err != nil {
		return err
	}
	defer probe.Close()
	defer p.watch(ctx, probe, tell, down.Topics)()
	defer p.watchCredentials(ctx, down.Credentials)()
	if err := p.openEncoder(ctx); err != nil {
		return err
	}
	defer p.encoder.Close()
	if err := p.openValues(ctx); err != nil {
		return err
	}
	defer p.values.Close()
	defer p.watchValues(ctx, down.Values)()
	if ctx.Err() != nil {
		return nil // stopped before anything was read
	}
	if p.cfg.Source.Mode == config.ModePoll {
		return p.poll(ctx, down, probe)
	}
	var past stream.Past
	for rounds := newRounds(); ; {
		began := time.Now()
		err := p.stream(ctx, down, probe, &past)
		wait, again := rounds.after(err, time.Since(began))
		if !again {
			return err
		}
		if ctx.Err() != nil {
			return nil // everything in flight is sent after the next start, or by another instance; a loss shows again
		}
		p.health.waitFor(err)
		p.metrics.Connected("postgres", false) // the next session may be long in coming
		what := "log was lost; beginning anew, to repair"
		if !errors.Is(err, stream.ErrToRepair) {
			what = "dropped what was in flight, standing by"
			p.metrics.BeganAnew(errors.Is(err, sink.ErrFenced))
		}
		p.log.Warn(what, zap.Error(err), zap.Duration("wait", wait))
		if backoff.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}

// stream opens the parts for a slot, and runs them. past is of the pipeline before, and
// then of the present one.
func (p *pipeline) stream(ctx context.Context, down *delivery.Downstream, probe *sink.Probe, past *stream.Past) error {
	router, err := transform.New(p.cfg.Event, p.cfg.Route)
	if err != nil {
		return err
	}
	parts := stream.Parts{Router: router, Metrics: p.metrics, Kafka: down, Past: *past, Log: p.log}
	closeQuarantine, err := p.openQuarantine(ctx, &parts)
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped before anything was read
		}
		return err
	}
	defer closeQuarantine()
	end, err := p.openDelivery(&parts, down, probe)
	if err != nil {
		return err
	}
	defer end()
	opened, err := p.openStore(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped before anything was read
		}
		return err
	}
	defer opened.Close()
	parts.Store, parts.Options = opened, p.streamOptions()
	if parts.Transactions != nil {
		parts.Transactions.Marker = opened.(store.Marker) // exactly once takes checkpoint.store: kafka
	}
	if probe != nil {
		parts.Routes = func(ctx context.Context, ends checkpoint.Ends) error {
			return probe.Routes(ctx, p.cfg.Route, ends)
		}
	}
	if p.cfg.Sink.Kafka != nil {
		parts.Left = func(ctx context.Context, topic string) error { return wiring.LeftParked(ctx, p.cfg, topic) }
	}
	parts.LeftBehind = func(ctx context.Context, f *checkpoint.Former) error { return wiring.LeftBehind(ctx, p.cfg, f) }
	if p.cfg.Errors.OnLoss == config.LossRepair {
		if parts.Repairer, err = p.newRepairer(); err != nil {
			return err
		}
	}
	r := stream.New(parts)
	p.health.set(r.Health())
	defer func() { *past = r.Health().Past() }()
	return r.Run(ctx)
}

func (p *pipeline) streamOptions() stream.Options {
	limit, linger := p.bounds()
	kept := p.cfg.Checkpoint
	kept.Key = wiring.CheckpointKey(p.cfg)
	return stream.Options{
		URL:              p.cfg.Source.URL.Reveal(),
		Standbys:         p.cfg.Source.Standbys,
		Tables:           p.cfg.Source.Tables,
		Slot:             p.cfg.Source.Slot,
		Publication:      p.cfg.Source.Publication,
		Create:           p.cfg.Source.Create,
		Repairable:       p.cfg.Repairable(),
		Fleet:            p.cfg.Fleet.On(),
		Failover:         p.cfg.Source.Failover == config.FailoverAlways,
		Messages:         p.cfg.Source.Mode == config.ModeMessage,
		Prefix:           p.cfg.Source.MessagePrefix,
		Snapshot:         p.cfg.Source.Snapshot == config.SnapshotInitial,
		StatusInterval:   p.cfg.Source.StatusInterval,
		LivenessTimeout:  p.cfg.Source.LivenessTimeout,
		OnUpdate:         p.cfg.Event.OnUpdate,
		OnBadEvent:       p.cfg.Errors.OnBadEvent,
		DrainTimeout:     p.cfg.Errors.DrainTimeout,
		MaxBufferedBytes: limit,
		Linger:           linger,
		Takes:            p.cfg.ClaimCheck.Takes,
		Boundaries:       p.boundaries(),
		Checkpoint:       kept,
		Retention:        p.cfg.Retention,
		Siblings:         p.cfg.Source.Siblings(),
		IntoKafka:        p.cfg.Sink.Kafka != nil,
		Visible:          p.cfg.Source.Visibility == config.VisibilityWait,
	}
}

// openDelivery opens the sink or the transactions, with the lease; end closes them.
func (p *pipeline) openDelivery(parts *stream.Parts, down *delivery.Downstream, probe *sink.Probe) (end func(), err error) {
	kafka := p.cfg.Sink.Kafka
	if kafka == nil || kafka.Delivery != sink.DeliveryExactlyOnce {
		parts.Lease = lease.New(func() {
			p.log.Warn("PostgreSQL has not shown for long that this instance still reads the slot, so another one may: nothing is written to Kafka until it does")
		})
		if parts.Sink, err = p.openSink(down, probe, parts.Lease, parks(parts)...); err != nil {
			return nil, err
		}
		return func() { parts.Lease.End(); parts.Sink.Close() }, nil
	}
	down.SinkOpened()
	id, err := wiring.TransactionalID(p.cfg)
	if err != nil {
		return nil, err
	}
	stable, stop, err := p.watchStable()
	if err != nil {
		return nil, err
	}
	out, err := sink.NewTransactions(*kafka, id, append(p.sinkOptions(down, probe, stable), append(parks(parts), sink.WithTransactionObserver(p.metrics))...)...)
	if err != nil {
		stop()
		return nil, err
	}
	parts.Transactions = &stream.Transactions{Sink: out}
	return func() { out.Close(); stop() }, nil
}

// stableEvery is how often last stable offsets are looked at.
const stableEvery = 5 * time.Second

// watchStable watches the last stable offsets of the topics written to. The returned stop
// joins the goroutine.
func (p *pipeline) watchStable() (watch *sink.StableOffsets, stop func(), err error) {
	if watch, err = sink.NewStableOffsets(*p.cfg.Sink.Kafka, wiring.CheckpointTopic(p.cfg)); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		watch.Run(ctx, stableEvery, func(back sink.HeldBack) { p.metrics.HeldBack(back.Records, back.For) })
	})
	return watch, func() {
		cancel()
		watching.Wait()
		watch.Close()
		p.metrics.HeldBack(0, 0)
	}, nil
}

// openSink opens a sink. The sink tells down which topics it waits for, and the
// probe brokers answer. The sink writes while it has the lease.
func (p *pipeline) openSink(down *delivery.Downstream, probe *sink.Probe, held *lease.Lease, more ...sink.Option) (sink.Sink, error) {
	down.SinkOpened()
	kafka := p.cfg.Sink.Kafka
	if kafka == nil {
		return sink.NewStdout(p.stdout), nil
	}
	return sink.NewKafka(*kafka, append(p.sinkOptions(down, probe, nil), append(more, sink.WithLease(held))...)...)
}

func (p *pipeline) sinkOptions(down *delivery.Downstream, probe *sink.Probe, stable *sink.StableOffsets) []sink.Option {
	opts := []sink.Option{sink.WithLogger(p.log), sink.WithObserver(&sinkObserver{down, p.metrics, probe, stable})}
	if p.cfg.Errors.OnBadEvent == transform.BadEventDeadLetter {
		opts = append(opts, sink.WithDeadLetterTopic(p.cfg.Errors.DeadLetterTopic))
	}
	if p.encoder != nil {
		opts = append(opts, sink.WithEncoder(p.encoder))
	}
	if p.values != nil {
		opts = append(opts, sink.WithValues(p.values))
	}
	return opts
}

// openEncoder makes the encoder, and waits until the schema registry answers, or ctx ends.
func (p *pipeline) openEncoder(ctx context.Context) (err error) {
	if p.encoder, err = wiring.Encoder(p.cfg); p.encoder == nil || err != nil {
		return err
	}
	return p.awaitSide(ctx, "registry", "the schema registry", p.encoder.Reach, func(error) bool { return false })
}

// awaitSide returns once the side answers, or ctx ends. A final error of reach is returned.
func (p *pipeline) awaitSide(ctx context.Context, side, name string, reach func(context.Context) error, final func(error) bool) error {
	retry, outage := backoff.Series{Range: storeWaits}, digest.NewOutage(p.log, name+" answers")
	for {
		err := reach(ctx)
		p.metrics.Connected(side, err == nil)
		switch {
		case err == nil:
			outage.Over()
			return nil
		case ctx.Err() != nil:
			return nil
		case final(err):
			return err
		}
		p.health.waitFor(err)
		outage.Failed(name+" is not available, will retry", err)
		_ = retry.Pause(ctx) // then ctx has ended
	}
}

// parks are the options of a sink for parked events, if there are any.
func parks(parts *stream.Parts) []sink.Option {
	if parts.Quarantine == nil {
		return nil
	}
	return []sink.Option{sink.WithQuarantine(parts.Quarantine.Log.Topic(), parts.Quarantine.Parks.Holds)}
}

// openQuarantine opens the quarantine, if configured, and tries again until ctx ends while
// brokers do not answer.
func (p *pipeline) openQuarantine(ctx context.Context, parts *stream.Parts) (end func(), err error) {
	p.metrics.ObserveQuarantine(nil)
	if p.cfg.Errors.OnBadEvent != transform.BadEventQuarantine {
		return func() {}, nil
	}
	log, err := wiring.OpenQuarantine(p.cfg)
	if err != nil {
		return nil, err
	}
	retry, outage := backoff.Series{Range: storeWaits}, digest.NewOutage(p.log, "the topic of the quarantine answers")
	for {
		if err = wiring.EnsureQuarantine(ctx, p.cfg, log); err == nil {
			break
		}
		if ctx.Err() == nil && failure.ClassOf(err) == failure.Transient {
			p.health.waitFor(err)
			outage.Failed("the topic of the quarantine is not available, will retry", err)
			if retry.Pause(ctx) == nil {
				continue
			}
		}
		log.Close()
		return nil, err
	}
	outage.Over()
	parks := &delivery.Quarantine{Parked: p.metrics.Quarantined, Largest: sink.LargestParked(*p.cfg.Sink.Kafka), Takes: p.cfg.ClaimCheck.Takes}
	parts.Quarantine = &stream.Quarantine{Log: log, Parks: parks, Limit: p.cfg.Errors.QuarantineLimit, Rules: wiring.Rules(p.cfg)}
	p.metrics.ObserveQuarantine(func() (events, keys int64) {
		if set := parks.Set(); set != nil {
			return set.Events(), set.Units()
		}
		return 0, 0
	})
	return log.Close, nil
}

// stdoutBuffer bounds the bytes in flight to standard output.
const stdoutBuffer = 4 << 20

// bounds returns how much memory may be in flight, and how long an event waits
// for others to share its batch.
func (p *pipeline) bounds() (limit int64, linger time.Duration) {
	if kafka := p.cfg.Sink.Kafka; kafka != nil {
		return kafka.MaxBufferedBytes, kafka.Linger
	}
	return stdoutBuffer, 0
}

// boundaries are the configured boundaries of transactions.
func (p *pipeline) boundaries() stream.Boundaries {
	kafka := p.cfg.Sink.Kafka
	if kafka == nil || !kafka.TransactionBoundaries {
		return stream.Boundaries{}
	}
	return stream.Boundaries{
		Keep:   true,
		Split:  kafka.OnOversizedTransaction == sink.OversizedSplit,
		Totals: p.cfg.Event.PositionHeaders,
	}
}

// storeWaits are the waits between attempts to reach the checkpoint store.
var storeWaits = backoff.Range{First: 250 * time.Millisecond, Longest: 5 * time.Second}

// openStore opens the checkpoint store, and tries again until ctx ends while the store
// cannot be reached.
func (p *pipeline) openStore(ctx context.Context) (checkpoint.Store, error) {
	retry, outage := backoff.Series{Range: storeWaits}, digest.NewOutage(p.log, "the checkpoint store answers")
	for {
		opened, err := wiring.OpenStore(ctx, p.cfg)
		if err == nil {
			if err = store.Writable(ctx, opened); err == nil {
				outage.Over()
				return opened, nil
			}
			opened.Close()
			err = fmt.Errorf("checkpoint store: %w", err)
		}
		if ctx.Err() != nil || failure.ClassOf(err) != failure.Transient {
			return nil, err
		}
		p.health.waitFor(err)
		outage.Failed("checkpoint store is not available, will retry", err)
		if err := retry.Pause(ctx); err != nil {
			return nil, err
		}
	}
}

// poll runs a pipeline needing neither slot nor checkpoint.
func (p *pipeline) poll(ctx context.Context, down *delivery.Downstream, probe *sink.Probe) error {
	limit, _ := p.bounds()
	held := lease.New(func() {
		p.log.Warn("rows were held for as long as the server allows, so another instance may have them: nothing more of them is written to Kafka")
	})
	defer held.End()
	r, err := poll.New(poll.Parts{
		Options:          p.cfg.Source.Poll,
		URL:              p.cfg.Source.URL.Reveal(),
		Tables:           p.cfg.Source.Tables,
		Event:            p.cfg.Event,
		Route:            p.cfg.Route,
		OnBadEvent:       p.cfg.Errors.OnBadEvent,
		DrainTimeout:     p.cfg.Errors.DrainTimeout,
		MaxBufferedBytes: limit,
		Takes:            p.cfg.ClaimCheck.Takes,

		Open:    func() (sink.Sink, error) { return p.openSink(down, probe, held) },
		Lease:   held,
		Metrics: p.metrics,
		Kafka:   down,
		Log:     p.log,
	})
	if err != nil {
		return err
	}
	p.health.set(r.Health())
	return r.Run(ctx)
}
