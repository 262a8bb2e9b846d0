package metrics

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

const namespace = "idempotency"

// Buckets of the histograms, in seconds. A store answers in microseconds to
// seconds; handlers take longer.
var (
	storeBuckets   = []float64{.00001, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}
	handlerBuckets = []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300}
)

// Metrics are the metrics of a single process. Several Processors and Consumers
// may share them. They are safe for concurrent use.
type Metrics struct {
	claims        *prometheus.CounterVec
	duplicates    *prometheus.CounterVec
	runs          *prometheus.CounterVec
	runDuration   prometheus.Histogram
	failures      prometheus.Counter
	lost          prometheus.Counter
	dropped       prometheus.Counter
	deadLetters   prometheus.Counter
	failOpen      prometheus.Counter
	shadow        *prometheus.CounterVec
	stuck         prometheus.Gauge
	storeDuration *prometheus.HistogramVec
	storeErrors   *prometheus.CounterVec

	consumer consumerMetrics
}

// New registers the metrics. New fails if the registry has metrics with the
// same names.
func New(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		claims:      counters("claims_total", "Claims that the store answered.", "outcome"),
		duplicates:  counters("duplicates_total", "Claims of completed messages, by the layer that knew them.", "layer"),
		runs:        counters("runs_total", "Runs, by what became of the message.", "disposition"),
		runDuration: histogram("run_duration_seconds", "Time of a run in which the handler ran, claim and settlement included.", handlerBuckets),
		failures:    counter("handler_failures_total", "Runs in which the handler ran and that ended in an error."),
		lost:        counter("leases_lost_total", "Leases lost while, or after, the handler ran."),
		dropped:     counter("results_dropped_total", "Results that were not stored because they are too large."),
		deadLetters: counter("dead_letter_errors_total", "Tries to keep a dead letter that failed; its message waits."),
		failOpen:    counter("fail_open_runs_total", "Handlers that ran without a claim because the store was unavailable."),
		shadow:      counters("shadow_decisions_total", "What would have become of messages, while Options.Shadow is set.", "disposition"),
		stuck: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "handlers_stuck",
			Help: "Handlers that still run though their context ended a while ago."}),
		storeDuration: histograms("store_operation_duration_seconds", "Time of an operation of the store.", storeBuckets, "operation"),
		storeErrors:   counters("store_errors_total", "Operations that the store gave no answer to.", "operation"),
		consumer:      newConsumerMetrics(),
	}
	m.announce()
	var errs []error
	for _, c := range append([]prometheus.Collector{
		m.claims, m.duplicates, m.runs, m.runDuration, m.failures, m.lost, m.dropped, m.deadLetters, m.failOpen, m.shadow, m.stuck, m.storeDuration, m.storeErrors,
	}, m.consumer.all()...) {
		errs = append(errs, registry.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

// announce makes known the series with known labels.
func (m *Metrics) announce() {
	for o := storage.Claimed; o <= storage.GivenUp; o++ {
		m.claims.WithLabelValues(o.String())
	}
	for _, l := range []storage.Layer{storage.LayerStore, storage.LayerMemory} {
		m.duplicates.WithLabelValues(string(l))
	}
	for d := idempotency.Handled; d <= idempotency.Unavailable; d++ {
		m.runs.WithLabelValues(d.String())
	}
	for _, op := range []storage.Operation{
		storage.OpReserve, storage.OpClaim, storage.OpExtend, storage.OpComplete, storage.OpFail,
	} {
		m.storeDuration.WithLabelValues(string(op))
		m.storeErrors.WithLabelValues(string(op))
	}
}

// Observer is for idempotency.Options.
func (m *Metrics) Observer() idempotency.Observer {
	return idempotency.Observer{
		Claim:            m.claim,
		Run:              m.run,
		LeaseLost:        func(idempotency.Loss) { m.lost.Inc() },
		ResultDropped:    func(idempotency.Message, int) { m.dropped.Inc() },
		DeadLetterFailed: func(idempotency.Message, error) { m.deadLetters.Inc() },
		FailOpen:         func(idempotency.Message, error) { m.failOpen.Inc() },
		HandlerStuck:     m.handlerStuck,
		Shadow: func(_ idempotency.Message, would idempotency.Result, _ error) {
			m.shadow.WithLabelValues(would.Disposition.String()).Inc()
		},
		StoreCall: m.storeCall,
	}
}

func (m *Metrics) handlerStuck(_ idempotency.Message, stuck bool) {
	if stuck {
		m.stuck.Inc()
	} else {
		m.stuck.Dec()
	}
}

func (m *Metrics) claim(_ idempotency.Message, c storage.Claim) {
	m.claims.WithLabelValues(c.Outcome.String()).Inc()
	if c.Outcome == storage.Duplicate {
		layer := c.Layer
		if layer == "" {
			layer = storage.LayerStore
		}
		m.duplicates.WithLabelValues(string(layer)).Inc()
	}
}

func (m *Metrics) run(_ idempotency.Message, r idempotency.Result, err error, elapsed time.Duration) {
	m.runs.WithLabelValues(r.Disposition.String()).Inc()
	if r.Attempt == 0 {
		return
	}
	m.runDuration.Observe(elapsed.Seconds())
	if err != nil || r.Disposition == idempotency.DeadLettered {
		m.failures.Inc()
	}
}

func (m *Metrics) storeCall(op storage.Operation, elapsed time.Duration, err error) {
	m.storeDuration.WithLabelValues(string(op)).Observe(elapsed.Seconds())
	if !storage.Answered(err) {
		m.storeErrors.WithLabelValues(string(op)).Inc()
	}
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
}
