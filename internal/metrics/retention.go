package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/retention"
)

// retentionMetrics show the work of retention. They have no series while
// retention is off.
type retentionMetrics struct {
	rows, partitions, passes, failures *prometheus.CounterVec
	bytes                              *prometheus.GaugeVec
}

func (r *retentionMetrics) register(m *Metrics) {
	r.rows = m.counterVec("retention_deleted_rows_total", "Published rows deleted by retention.", "table")
	r.partitions = m.counterVec("retention_partitions_total", "Partitions created ahead, and dropped after they were published.", "table", "change")
	r.passes = m.counterVec("retention_passes_total", "Passes through a table, failed ones included.", "table")
	r.failures = m.counterVec("retention_failures_total", "Passes through a table that failed; they are tried again.", "table")
	r.bytes = m.gaugeVec("retention_table_bytes", "Size of the table with its partitions and indexes after the last pass.", "table")
}

// RetentionDeleted implements retention.Observer.
func (m *Metrics) RetentionDeleted(table pg.Table, rows int64) {
	m.retention.rows.WithLabelValues(table.String()).Add(float64(rows))
}

// RetentionPartition implements retention.Observer.
func (m *Metrics) RetentionPartition(table pg.Table, change retention.PartitionChange) {
	m.retention.partitions.WithLabelValues(table.String(), string(change)).Inc()
}

// RetentionPassed implements retention.Observer.
func (m *Metrics) RetentionPassed(table pg.Table, bytes int64, err error) {
	m.retention.passes.WithLabelValues(table.String()).Inc()
	if err != nil {
		m.retention.failures.WithLabelValues(table.String()).Inc()
		return
	}
	m.retention.bytes.WithLabelValues(table.String()).Set(float64(bytes))
}
