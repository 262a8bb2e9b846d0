package metrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/cdc-outbox/cdc-outbox/internal/tracing"
)

// PipelineLabel tells pipelines apart where a process runs several.
const PipelineLabel = "pipeline"

// Set is a process's metrics: its own, and those of its pipelines. Safe for
// concurrent use.
type Set struct {
	process, pipelines *prometheus.Registry

	spansExported prometheus.Counter
	spansDropped  *prometheus.CounterVec
}

// New returns a set with the metrics of the Go runtime, the process and the
// build.
func New(version, commit string) *Set {
	s := &Set{process: prometheus.NewRegistry(), pipelines: prometheus.NewRegistry()}
	build := gaugeVec(s.process, "build_info", "Always 1; the labels say what is running.", "version", "commit", "goversion")
	build.WithLabelValues(version, commit, runtime.Version()).Set(1)
	s.process.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	s.spansExported = prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "spans_exported_total",
		Help: "Spans of events that the collector at tracing.otlp_endpoint took."})
	s.spansDropped = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "spans_dropped_total",
		Help: "Spans that were not exported: queue_full (too many wait), refused (by the collector) or stopped (the process ended first)."}, []string{"reason"})
	s.process.MustRegister(s.spansExported, s.spansDropped)
	for _, reason := range []string{tracing.DroppedFull, tracing.DroppedRefused, tracing.DroppedStopped} {
		s.SpansDropped(reason, 0)
	}
	return s
}

// SpansExported counts spans that the collector took.
func (s *Set) SpansExported(n int) { s.spansExported.Add(float64(n)) }

// SpansDropped counts spans that were not exported.
func (s *Set) SpansDropped(reason string, n int) {
	s.spansDropped.WithLabelValues(reason).Add(float64(n))
}

// Gatherer returns the metrics for an HTTP handler.
func (s *Set) Gatherer() prometheus.Gatherer {
	return prometheus.Gatherers{s.process, s.pipelines}
}

// Pipelines returns the metrics of the pipelines alone, cheaper to gather.
func (s *Set) Pipelines() prometheus.Gatherer { return s.pipelines }

// Pipeline returns the metrics of a single pipeline, at zero, with every series
// whose labels are known in advance. All carry the name as the label pipeline,
// or no such label if the name is empty. A name may be used again after Metrics.Remove.
func (s *Set) Pipeline(name string) *Metrics {
	var to prometheus.Registerer = s.pipelines
	if name != "" {
		to = prometheus.WrapRegistererWith(prometheus.Labels{PipelineLabel: name}, s.pipelines)
	}
	m := &Metrics{registry: &registry{to: to}}
	m.registerEvents()
	m.registerConnector()
	m.registerProgress()
	m.registerHealth()
	m.registerPairs()
	m.registerTransactions()
	m.slot.register(m)
	m.failover.register(m)
	m.retention.register(m)
	m.quarantine.register(m)
	m.registerValues()
	return m
}
