package pipeline

import (
	"context"

	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// poll runs a pipeline that needs neither slot nor checkpoint.
func (p *pipeline) poll(ctx context.Context, down *delivery.Downstream, open func() (sink.Sink, error)) error {
	limit, _ := p.bounds()
	r, err := poll.New(poll.Parts{
		Options:          p.cfg.Source.Poll,
		URL:              p.cfg.Source.URL.Reveal(),
		Tables:           p.cfg.Source.Tables,
		Event:            p.cfg.Event,
		Route:            p.cfg.Route,
		OnBadEvent:       p.cfg.Errors.OnBadEvent,
		DrainTimeout:     p.cfg.Errors.DrainTimeout,
		MaxBufferedBytes: limit,

		Open:    open,
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
