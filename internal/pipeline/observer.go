package pipeline

import (
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// sinkObserver is the sink.Observer of a pipeline.
type sinkObserver struct {
	*delivery.Downstream // for the readiness answer
	metrics              *metrics.Metrics
	probe                *sink.Probe
	stable               *sink.StableOffsets // nil with at least once
}

func (o *sinkObserver) Reconnect() { o.metrics.Reconnected("kafka") }

func (o *sinkObserver) PartitionsChanged(topic string, _, _ int32) { o.metrics.PartitionsGrown(topic) }

func (o *sinkObserver) TopicRemade(topic string) { o.metrics.TopicRemade(topic) }

func (o *sinkObserver) TopicUsed(topic string) {
	o.probe.Used(topic)
	if o.stable != nil {
		o.stable.Add(topic)
	}
}

func (o *sinkObserver) Throttled(wait time.Duration) {
	o.Downstream.Throttled(wait)
	o.metrics.Throttled(wait)
}

func (o *sinkObserver) Answered() { o.probe.Answered() }
