package pipeline

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/tracing"
)

// startSpans starts the export of spans for all pipelines, if configured. The returned stop
// exports what is left, for some seconds at most, and joins the goroutine.
func startSpans(o Options, set *metrics.Set, pipelines []*pipeline) (stop func(), err error) {
	if !o.Config.Tracing.On() {
		return func() {}, nil
	}
	exporter, err := tracing.New(o.Config.Tracing, o.Version, uuid.NewString(), set, o.Log)
	if err != nil {
		return nil, err
	}
	for _, p := range pipelines {
		p.health.spans = exporter
		if kafka := p.cfg.Sink.Kafka; kafka != nil {
			p.spans = &tracing.Source{Exporter: exporter, Pipeline: p.name, ClientID: kafka.ClientID}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var exporting sync.WaitGroup
	exporting.Go(func() { exporter.Run(ctx) })
	return func() { cancel(); exporting.Wait() }, nil
}
