package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ObserveDiscovery adds the metrics of changing pipelines, by a function for their number, the
// number of faulty sources, and the time of the last look. ObserveDiscovery may be called once.
func (s *Set) ObserveDiscovery(read func() (pipelines, faults int, at time.Time)) {
	s.process.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: "discovery_pipelines",
			Help: "Pipelines that the sources under discovery name now."},
			func() float64 { n, _, _ := read(); return float64(n) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: "discovery_faults",
			Help: "Sources of pipelines that cannot be followed; their pipelines of before go on. The log and /status name them."},
			func() float64 { _, n, _ := read(); return float64(n) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: "discovery_last_look_timestamp_seconds",
			Help: "When the sources of pipelines were last looked at."},
			func() float64 { _, _, at := read(); return float64(at.UnixNano()) / 1e9 }))
}
