package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// registry remembers a pipeline's collectors, to take them out again.
type registry struct {
	to prometheus.Registerer

	mu         sync.Mutex
	collectors []prometheus.Collector
}

// MustRegister adds collectors. It panics if a collector is there already.
func (r *registry) MustRegister(collectors ...prometheus.Collector) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to.MustRegister(collectors...)
	r.collectors = append(r.collectors, collectors...)
}

// Remove takes the pipeline's series out of the set, after the pipeline has ended.
func (m *Metrics) Remove() {
	m.registry.mu.Lock()
	defer m.registry.mu.Unlock()
	for _, c := range m.registry.collectors {
		m.registry.to.Unregister(c)
	}
	m.registry.collectors = nil
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
	m.registry.MustRegister(g)
	return g
}

func (m *Metrics) gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return gaugeVec(m.registry, name, help, labels...)
}

func gaugeVec(to interface {
	MustRegister(...prometheus.Collector)
}, name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	to.MustRegister(g)
	return g
}
