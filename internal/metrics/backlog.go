package metrics

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// backlogGauges are polling's view of the tables, from the first look on: a
// stream has no such numbers.
type backlogGauges struct {
	once         sync.Once
	rows, oldest prometheus.Gauge
}

// Backlog sets how many rows wait to be published, and the age of the oldest.
func (m *Metrics) Backlog(rows int64, oldest time.Duration) {
	b := &m.backlog
	b.once.Do(func() {
		b.rows = m.gauge("unpublished_rows", "Polling: rows of the outbox tables that are not published, counted up to 10,000 for each; as of a look every ten seconds.")
		b.oldest = m.gauge("oldest_unpublished_seconds", "Polling: age of the oldest row that is not published; 0 without one, or where no column tells. As of a look every ten seconds.")
	})
	b.rows.Set(float64(rows))
	b.oldest.Set(oldest.Seconds())
}

// BacklogUnknown makes the values of Backlog NaN.
func (m *Metrics) BacklogUnknown() {
	if b := &m.backlog; b.rows != nil {
		b.rows.Set(math.NaN())
		b.oldest.Set(math.NaN())
	}
}
