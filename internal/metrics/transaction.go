package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// transactionMetrics are the metrics of Kafka transactions, for exactly-once
// delivery.
type transactionMetrics struct {
	since   atomic.Pointer[time.Time] // when the open transaction began; nil: none is open
	commits prometheus.Histogram
	records prometheus.Histogram
	bytes   prometheus.Histogram
	aborts  prometheus.Counter
	anew    prometheus.Counter
	fenced  prometheus.Counter
	behind  prometheus.Gauge // records
	held    prometheus.Gauge // seconds
}

func (m *Metrics) registerTransactions() {
	t := &m.kafkaTxns
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "transaction_age_seconds",
		Help: "How long the open Kafka transaction has been open; 0 while none is. It holds back consumers that read what is committed.",
	}, func() float64 {
		since := t.since.Load()
		if since == nil {
			return 0
		}
		return time.Since(*since).Seconds()
	}))
	t.commits = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: "transaction_commit_seconds",
		Help:    "Time that the coordinator took to commit a Kafka transaction.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	})
	t.records = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: "transaction_records",
		Help:    "Records in a committed Kafka transaction, its checkpoint included.",
		Buckets: prometheus.ExponentialBuckets(1, 4, 9),
	})
	t.bytes = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: "transaction_bytes",
		Help:    "Keys, values and headers of the records in a committed Kafka transaction, its checkpoint included.",
		Buckets: prometheus.ExponentialBuckets(256, 4, 11),
	})
	t.behind = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "stable_offset_lag_records",
		Help: "Records, at most of a partition written to, that consumers of what is committed cannot read yet, because a Kafka transaction of anybody is open before them.",
	})
	t.held = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "stable_offset_held_seconds",
		Help: "How long the last stable offset of such a partition has not moved, at most; 0 while none is behind.",
	})
	m.registry.MustRegister(t.commits, t.records, t.bytes, t.behind, t.held)
	t.aborts = m.counter("transactions_aborted_total", "Kafka transactions aborted because brokers did not take a record; they are written again.")
	t.anew = m.counter("begun_anew_total", "Times that everything in flight was dropped, because another instance had the slot or a Kafka transaction had no known end. Nothing is lost.")
	t.fenced = m.counter("fenced_total", "Those of begun_anew_total in which another instance had the transactional id, or a Kafka transaction took longer than its timeout.")
}

// TransactionOpen sets since when a Kafka transaction is open; the zero time
// means that none is.
func (m *Metrics) TransactionOpen(since time.Time) {
	if since.IsZero() {
		m.kafkaTxns.since.Store(nil)
		return
	}
	m.kafkaTxns.since.Store(&since)
}

// HeldBack sets how far consumers that read only committed records are held
// back.
func (m *Metrics) HeldBack(records int64, stands time.Duration) {
	m.kafkaTxns.behind.Set(float64(records))
	m.kafkaTxns.held.Set(stands.Seconds())
}

// TransactionCommitted counts a committed Kafka transaction.
func (m *Metrics) TransactionCommitted(records int, bytes int64, took time.Duration) {
	m.kafkaTxns.commits.Observe(took.Seconds())
	m.kafkaTxns.records.Observe(float64(records))
	m.kafkaTxns.bytes.Observe(float64(bytes))
}

// TransactionAborted counts an aborted Kafka transaction.
func (m *Metrics) TransactionAborted() { m.kafkaTxns.aborts.Inc() }

// BeganAnew counts that everything in flight was dropped, and whether another
// producer had the transactional id.
func (m *Metrics) BeganAnew(fenced bool) {
	m.kafkaTxns.anew.Inc()
	if fenced {
		m.kafkaTxns.fenced.Inc()
	}
}
