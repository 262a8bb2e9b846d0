package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
)

// consumerMetrics are package consumer's.
type consumerMetrics struct {
	records        *prometheus.CounterVec
	recordDuration prometheus.Histogram
	commits        *prometheus.CounterVec
	commitDuration prometheus.Histogram
	paused         prometheus.Gauge
	abandoned      prometheus.Counter
}

func newConsumerMetrics() consumerMetrics {
	c := consumerMetrics{
		records:        counters("consumer_records_total", "Attempts at records, by what became of them.", "topic", "disposition"),
		recordDuration: histogram("consumer_record_duration_seconds", "Time of an attempt at a record.", handlerBuckets),
		commits:        counters("consumer_commits_total", "Commits of offsets.", "result"),
		commitDuration: histogram("consumer_commit_duration_seconds", "Time of a commit of offsets.", storeBuckets),
		paused: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "consumer_paused_partitions",
			Help: "Partitions in which a record waits for its next attempt, or all while the store is unavailable."}),
		abandoned: counter("consumer_handlers_abandoned_total", "Handlers whose context ended because of a rebalance or a stop."),
	}
	c.commits.WithLabelValues("ok")
	c.commits.WithLabelValues("error")
	return c
}

func (c *consumerMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{c.records, c.recordDuration, c.commits, c.commitDuration, c.paused, c.abandoned}
}

// ConsumerObserver is for consumer.Config. Consumers may share Metrics.
func (m *Metrics) ConsumerObserver() consumer.Observer {
	c := &m.consumer
	return consumer.Observer{
		Processed: func(r *kgo.Record, result idempotency.Result, _ error, elapsed time.Duration) {
			c.records.WithLabelValues(r.Topic, result.Disposition.String()).Inc()
			c.recordDuration.Observe(elapsed.Seconds())
		},
		PausedPartitions: func(change int) { c.paused.Add(float64(change)) },
		Committed: func(elapsed time.Duration, err error) {
			c.commitDuration.Observe(elapsed.Seconds())
			if err != nil {
				c.commits.WithLabelValues("error").Inc()
				return
			}
			c.commits.WithLabelValues("ok").Inc()
		},
		Abandoned: func(handlers int) { c.abandoned.Add(float64(handlers)) },
	}
}
