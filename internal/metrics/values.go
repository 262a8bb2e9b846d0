package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// valueMetrics are of large values kept outside of Kafka.
type valueMetrics struct {
	kept, bytes prometheus.Counter
	took        prometheus.Histogram
}

func (m *Metrics) registerValues() {
	m.values.kept = m.counter("claims_total", "Large values kept in the claim store, each time they were written.")
	m.values.bytes = m.counter("claims_bytes_total", "Bytes of these values.")
	m.values.took = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: "claim_seconds", Help: "Time that the claim store took for a value.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	})
	m.registry.MustRegister(m.values.took)
}

// ValueKept counts a value that the claim store has taken.
func (m *Metrics) ValueKept(bytes int, took time.Duration) {
	m.values.kept.Inc()
	m.values.bytes.Add(float64(bytes))
	m.values.took.Observe(took.Seconds())
}
