package connector

import (
	"context"

	"github.com/cdc-outbox/cdc-outbox/poll"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// poll runs a relay that needs neither slot nor checkpoint.
func (p *pipeline) poll(ctx context.Context) error {
	state := poll.NewHealth(p.metrics)
	probe, err := p.newProbe(state.Brokers)
	if err != nil {
		return err
	}
	defer probe.Close()
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

		Open:    func() (sink.Sink, error) { return p.openSink(state.TopicWaiting, probe) },
		Metrics: p.metrics,
		Health:  state,
		Log:     p.log,
	})
	if err != nil {
		return err
	}
	p.health.set(state)
	defer p.watch(ctx, probe, state.Brokers)()
	return r.Run(ctx)
}
