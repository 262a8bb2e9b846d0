package pipeline

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// errUnasked is why a pipeline is not ready before the first answer of a broker.
var errUnasked = errors.New("no broker has answered yet")

// probePace is how often brokers are asked, tests more often.
var probePace = sink.UsualPace

// newProbe returns the probe of the pipeline's brokers, or nil where it has no
// brokers. It calls tell at once: no broker has answered yet.
func (p *pipeline) newProbe(tell func(error)) (*sink.Probe, error) {
	if p.cfg.Sink.Kafka == nil {
		return nil, nil
	}
	tell(errUnasked)
	return sink.NewProbe(*p.cfg.Sink.Kafka, probePace, p.topics()...)
}

// topics are written to with any events.
func (p *pipeline) topics() (uses []sink.Use) {
	kafka := *p.cfg.Sink.Kafka
	if _, topic, err := p.cfg.Route.Topics(); err == nil && topic != "" {
		uses = append(uses, sink.Use{Topic: topic, Optional: kafka.CreateTopics}) // or each event would be a bad one
	}
	if p.cfg.Errors.OnBadEvent == transform.BadEventDeadLetter {
		uses = append(uses, sink.Use{Topic: p.cfg.Errors.DeadLetterTopic, Optional: kafka.CreateTopics, Letters: true})
	}
	if p.cfg.Errors.OnBadEvent == transform.BadEventQuarantine {
		uses = append(uses, sink.Use{Topic: wiring.QuarantineTopic(p.cfg), Read: true})
	}
	if p.cfg.Checkpoint.Store == store.StoreKafka && p.cfg.Source.Mode != config.ModePoll {
		uses = append(uses, sink.Use{Topic: wiring.CheckpointTopic(p.cfg), Read: true})
	}
	return uses
}

// watch runs the probe until the returned function is called. The returned
// function joins the goroutine. The probe outlives ctx, because a pipeline that
// drains needs brokers too.
func (p *pipeline) watch(ctx context.Context, probe *sink.Probe, tell func(error), topics func([]error)) (stop func()) {
	if probe == nil {
		return func() {}
	}
	lines, outage := digest.New(p.log), digest.NewOutage(p.log, "Kafka answers again")
	judged := false // are the topics, which are known to be sound or not
	report := func(err error) {
		if err == nil && !judged {
			return
		}
		tell(err)
		if err != nil {
			outage.Failed("Kafka does not answer; events wait", err)
		} else {
			outage.Over()
		}
	}
	probe.Paused = func(d time.Duration) {
		p.log.Warn("this process has not run for a while: it was stopped, its machine was suspended, or it had no processor; what is late since is nobody else's fault",
			zap.Duration("paused", d))
	}
	wrong := 0 // of the topics
	reportTopics := func(troubles []error) {
		topics(troubles)
		judged = true
		for _, err := range troubles {
			lines.Note(digest.Kind{Level: zap.WarnLevel, Message: "a topic in use cannot be written to", Detail: err.Error()},
				zap.Error(err), zap.String("remedy", failure.RemedyOf(err)))
		}
		if wrong > 0 && len(troubles) == 0 {
			lines.Flush()
			p.log.Info("all topics in use can be written to again")
		}
		wrong = len(troubles)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	watching.Go(func() { probe.Run(ctx, report, reportTopics) })
	return func() {
		cancel()
		watching.Wait()
		lines.Flush()
	}
}
