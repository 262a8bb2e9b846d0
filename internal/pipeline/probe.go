package pipeline

import (
	"context"
	"errors"
	"sync"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/sink"
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
	return sink.NewProbe(*p.cfg.Sink.Kafka, probePace)
}

// watch runs the probe until the returned function is called. That function
// joins the goroutine. The probe outlives ctx, because a pipeline that drains
// needs brokers too.
func (p *pipeline) watch(ctx context.Context, probe *sink.Probe, tell func(error)) (stop func()) {
	if probe == nil {
		return func() {}
	}
	lines := digest.New(p.log)
	silent := false
	report := func(err error) {
		tell(err)
		if err != nil {
			lines.Note(digest.Kind{Level: zap.WarnLevel, Message: "Kafka does not answer; events wait"},
				zap.Error(err), zap.String("remedy", failure.RemedyOf(err)))
		} else if silent {
			lines.Flush()
			p.log.Info("Kafka answers again")
		}
		silent = err != nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	watching.Go(func() { probe.Run(ctx, report) })
	return func() {
		cancel()
		watching.Wait()
		lines.Flush()
	}
}
