package pipeline

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/tracing"
)

// startSpans starts the export of spans for all pipelines, if configured; otherwise the
// exporter is nil. The returned stop exports what is left, for some seconds at most, and joins
// the goroutine.
func startSpans(o Options, set *metrics.Set) (exporter *tracing.Exporter, stop func(), err error) {
	if !o.Config.Tracing.On() {
		return nil, func() {}, nil
	}
	if exporter, err = tracing.New(o.Config.Tracing, o.Version, uuid.NewString(), set, o.Log); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var exporting sync.WaitGroup
	exporting.Go(func() { exporter.Run(ctx) })
	return exporter, func() { cancel(); exporting.Wait() }, nil
}
