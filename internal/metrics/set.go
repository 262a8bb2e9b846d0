package metrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// pipelineLabel tells pipelines apart where a process runs several.
const pipelineLabel = "pipeline"

// Set is a process's metrics: its own, and those of its pipelines. It is safe
// for concurrent use.
type Set struct {
	registry *prometheus.Registry
}

// New returns a set with the metrics of the Go runtime, the process and the
// build.
func New(version, commit string) *Set {
	s := &Set{registry: prometheus.NewRegistry()}
	build := gaugeVec(s.registry, "build_info", "Always 1; the labels say what is running.", "version", "commit", "goversion")
	build.WithLabelValues(version, commit, runtime.Version()).Set(1)
	s.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return s
}

// Gatherer returns what an HTTP handler serves.
func (s *Set) Gatherer() prometheus.Gatherer { return s.registry }

// Pipeline returns the metrics of one pipeline, at zero, with every series whose
// labels are known in advance. All carry its name as the label pipeline, or no
// such label if the name is empty. A name may be used once.
func (s *Set) Pipeline(name string) *Metrics {
	var to prometheus.Registerer = s.registry
	if name != "" {
		to = prometheus.WrapRegistererWith(prometheus.Labels{pipelineLabel: name}, s.registry)
	}
	m := &Metrics{registry: to}
	m.registerEvents()
	m.registerConnector()
	m.registerProgress()
	m.registerHealth()
	m.registerTransactions()
	m.slot.register(m)
	m.retention.register(m)
	return m
}
