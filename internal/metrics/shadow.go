package metrics

import "github.com/prometheus/client_golang/prometheus"

// ShadowNumbers are those of a comparison with Debezium.
type ShadowNumbers struct {
	// Events counts by result.
	Events                 map[string]int64
	Pending, Lag, Retained int64
	Active, Reading        bool
}

// Shadow are the metrics of a comparison. now is called at each scrape, and must not block.
func Shadow(now func() ShadowNumbers) prometheus.Collector { return shadowMetrics{now} }

type shadowMetrics struct{ now func() ShadowNumbers }

var (
	shadowEvents   = prometheus.NewDesc("cdc_outbox_shadow_events_total", "Events compared with Debezium's records, and records without an event, by result.", []string{"result"}, nil)
	shadowPending  = prometheus.NewDesc("cdc_outbox_shadow_pending_events", "Events without a record of Debezium's so far, which has not confirmed them.", nil, nil)
	shadowLag      = prometheus.NewDesc("cdc_outbox_shadow_debezium_lag_bytes", "Log that Debezium's slot has not confirmed.", nil, nil)
	shadowActive   = prometheus.NewDesc("cdc_outbox_shadow_debezium_active", "Whether Debezium reads its slot.", nil, nil)
	shadowReading  = prometheus.NewDesc("cdc_outbox_shadow_reading", "Whether the comparison reads the log.", nil, nil)
	shadowRetained = prometheus.NewDesc("cdc_outbox_shadow_retained_bytes", "Log that the comparison's own slot keeps.", nil, nil)
)

// Describe implements prometheus.Collector.
func (shadowMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{shadowEvents, shadowPending, shadowLag, shadowActive, shadowReading, shadowRetained} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m shadowMetrics) Collect(out chan<- prometheus.Metric) {
	n := m.now()
	gauge := func(d *prometheus.Desc, v float64) { out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	truth := func(d *prometheus.Desc, v bool) {
		if v {
			gauge(d, 1)
		} else {
			gauge(d, 0)
		}
	}
	for result, count := range n.Events {
		out <- prometheus.MustNewConstMetric(shadowEvents, prometheus.CounterValue, float64(count), result)
	}
	gauge(shadowPending, float64(n.Pending))
	gauge(shadowLag, float64(n.Lag))
	gauge(shadowRetained, float64(n.Retained))
	truth(shadowActive, n.Active)
	truth(shadowReading, n.Reading)
}
