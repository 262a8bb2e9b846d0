package pipeline

import (
	"context"

	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/stream"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// poll runs a relay that needs neither slot nor checkpoint.
func (p *pipeline) poll(ctx context.Context, down *stream.Downstream, open func() (sink.Sink, error)) error {
	state := poll.NewHealth(p.metrics, down)
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
		Health:  state,
		Log:     p.log,
	})
	if err != nil {
		return err
	}
	p.health.set(state)
	return r.Run(ctx)
}
